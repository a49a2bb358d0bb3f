"""The daemon that dies by SIGKILL at one op on the API server, as if the power had gone at that instant.

`python -m tests.kube.dying_daemon N MODULE.NAME=VALUE ... -- ARGUMENTS`: before the op number N, from 0; -1
never.
"""

from __future__ import annotations

import os
import signal
import sys

from nodeagent.act.cluster import NodeWriter
from nodeagent.model import Op
from tests.netns.quick_daemon import patch


def die_at(number: int) -> None:
    """Have this process die before an op."""
    perform, passed = NodeWriter.perform, 0

    async def perform_or_die(self: NodeWriter, op: Op) -> str:
        nonlocal passed
        if passed == number:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1
        return await perform(self, op)

    NodeWriter.perform = perform_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    at = sys.argv.index("--")
    die_at(int(sys.argv[1]))
    patch(sys.argv[2:at])
    sys.argv[1:] = sys.argv[at + 1 :]
    from nodeagent.cli import main

    sys.exit(main())
