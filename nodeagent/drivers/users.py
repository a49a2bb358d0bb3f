"""Names of the node's users: who a uid is, for the record of who gave a command.

The uid comes from the kernel and is what counts; a name is only told beside it. It never decides
what somebody may do.
"""

from __future__ import annotations

import pwd
from pathlib import Path

MAX_CHARACTERS = 64
MAX_FILE_BYTES = 1 << 20


def user_name(user_id: int, host_root: str) -> str:
    """Name of a uid on the node, "" where it has none or that cannot be read.

    With another `host_root` than "/", as in a container, by that root's /etc/passwd alone: the
    container's own users are not the node's. It may wait for the network where names come from a
    directory service, so it is no call for the loop's own thread.
    """
    try:
        name = pwd.getpwuid(user_id).pw_name if host_root == "/" else _in_file(user_id, host_root)
    except (KeyError, OSError, OverflowError, ValueError):
        return ""
    return "".join(c for c in name if c.isprintable())[:MAX_CHARACTERS]


def _in_file(user_id: int, host_root: str) -> str:
    with (Path(host_root) / "etc" / "passwd").open("rb") as file:
        text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    for line in text.splitlines():
        name, *fields = line.split(":")
        if len(fields) > 1 and fields[1] == str(user_id):
            return name
    return ""
