"""Files become one frozen `Settings`: fragments are read, every key is judged, the last file wins.

Nothing here changes a file, asks the network, or lets a half-good configuration through: either all
keys of all files are right, or `ConfigError` carries one sentence per problem.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from nodeagent.config import values
from nodeagent.config.files import DEFAULT_PATH, fragments, parse, printable
from nodeagent.config.keys import KnownCheck, Reader
from nodeagent.config.values import show_key
from nodeagent.errors import ConfigError
from nodeagent.model import NodeClass
from nodeagent.settings import Settings, StatusSettings

__all__ = ["DEFAULT_PATH", "KnownCheck", "Loaded", "consequences", "load", "socket_path"]

PROBLEMS_SHOWN = 200
_HARDWARE_FAMILIES = ("gpu", "driver")
_TAINTS = "then taints this node with {}:NoSchedule, so that it takes no new pods."
_BY_READS = "It is lifted when the check reads good as long as its hold asks; no reset or reboot is needed."
_BY_RESET = "It is lifted only after a reset or reboot that the agent has seen, and good reads after it."
_XID_ENDS = {
    NodeClass.RESET: _BY_RESET,
    NodeClass.REBOOT: _BY_RESET,
    NodeClass.VENDOR: "It is lifted when another GPU is in its place, or by nodeagent gpu repaired.",
}


class Loaded(Struct, frozen=True, kw_only=True):
    """The effective settings and where each value came from."""

    settings: Settings
    sources: dict[str, str]
    """Key -> file, "environment NODE_NAME" or "host name"; a key not in it has its default."""
    files: tuple[str, ...]
    """Files read, in order; later ones win."""


def load(
    path: str | None, known_checks: Mapping[str, KnownCheck], environment: Mapping[str, str] | None = None
) -> Loaded:
    """Read `path` (None: the default path, which may be missing) and `conf.d/*.toml` beside it.

    Raises ConfigError with every problem found, one sentence each.
    """
    reader = Reader(known_checks)
    files = []
    for file in fragments(path, reader.problems):
        content = parse(file, reader.problems)
        if content is not None:
            files.append(printable(file))
            reader.read(files[-1], content)
    reader.judge_holds()
    reader.judge_shares()
    reader.name_node(os.environ if environment is None else environment)
    if reader.problems:
        hidden = len(reader.problems) - PROBLEMS_SHOWN
        more = [f"and {hidden} more problems"] if hidden > 0 else []
        raise ConfigError(*reader.problems[:PROBLEMS_SHOWN], *more)
    return Loaded(settings=reader.settings(), sources=reader.sources, files=tuple(files))


def socket_path(path: str | None) -> str:
    """Return `[status] socket` even when the rest of the configuration is wrong or unreadable.

    A reader's command must find the daemon while the operator is repairing the files. Raises
    ConfigError only when an explicit `path` cannot be read.
    """
    problems: list[str] = []
    found = StatusSettings().socket
    for file in fragments(path, problems):
        content = parse(file, problems) or {}
        section = content.get("status")
        wanted = section.get("socket") if isinstance(section, dict) else None
        if isinstance(wanted, str) and wanted.startswith("/") and values.socket_path_fits(wanted):
            found = wanted
    if path is not None and problems and not os.access(path, os.R_OK):
        raise ConfigError(problems[0])
    return found


def consequences(settings: Settings, known_checks: Mapping[str, KnownCheck]) -> tuple[str, ...]:
    """Say in sentences what it means where the operator raised a check or an Xid to a class that taints."""
    said = []
    prefix = settings.cluster.taint_prefix
    for check_id, changed in settings.checks.items():
        check, chosen = known_checks[check_id], changed.node_class
        if changed.enabled and chosen is not None and chosen.taints and not check.node_class.taints:
            taint = "gpu-unhealthy" if check.family in _HARDWARE_FAMILIES else "node-unhealthy"
            ends = _BY_RESET if check.hold.proof == "reset" else _BY_READS
            key = show_key("checks", check_id, "class")
            said.append(f'{key} = "{chosen}": {check_id} {_TAINTS.format(f"{prefix}/{taint}")} {ends}')
    for number, chosen in settings.gpu.xid.items():
        if chosen.taints:
            key = show_key("gpu", "xid", number)
            taints = _TAINTS.format(f"{prefix}/gpu-unhealthy")
            said.append(f'{key} = "{chosen}": each Xid {number} {taints} {_XID_ENDS[chosen]}')
    return tuple(said)
