"""Which of the two iptables this host uses: kubelet's mark, then who holds rules, then nft.

A wrong choice is silent: rules in the other backend still act on packets, beside those of everybody else,
and nobody who looks finds them.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from nodeagent.drivers.iptables.nft import NftRules
from nodeagent.drivers.iptables.programs import PROGRAM, Backend, found, run, saved
from nodeagent.drivers.iptables.text import SavedTable
from nodeagent.drivers.iptables.writer import RuleWriter
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import FAMILIES

HINTS = frozenset({"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"})
"""Chains that the kubelet makes in mangle, with the iptables that the host uses."""
BACKENDS = ("nft", "legacy")


async def choose_backend(iptables_path: str = "") -> Backend:
    """The backend of this host; of `iptables_path` when that is set.

    Raises DriverError: absent when there is no iptables (or none of that path), else what reading it said.
    """
    if iptables_path:
        return await _of_path(iptables_path)
    tables: dict[str, tuple[SavedTable, ...]] = {}
    prefixes: dict[str, dict[int, str]] = {}
    failures: list[DriverError] = []
    for name in BACKENDS:
        try:
            paths = await _prefixes(name)
            tables[name] = (*await saved(name, paths[4], 4), *await saved(name, paths[6], 6))
            prefixes[name] = paths
        except DriverError as error:
            failures.append(error)
    if not tables:
        raise failures[0]
    name, reason = _judged(tables)
    return Backend(name=name, reason=reason, prefix=prefixes[name])


def open_rules(backend: Backend) -> RuleWriter:
    """The writer for a backend; legacy alone loads python-iptables (DriverError absent without it)."""
    if backend.name == "nft":
        return NftRules(backend)
    try:
        legacy = importlib.import_module("nodeagent.drivers.iptables.legacy")
    except Exception as error:
        detail = f"python-iptables cannot be loaded ({error}); pip install 'nodeagent[legacy]' brings it"
        raise DriverError(ErrorKind.ABSENT, "python-iptables", "load", detail) from error
    writer: RuleWriter = legacy.LegacyRules(backend)
    return writer


def _judged(tables: dict[str, tuple[SavedTable, ...]]) -> tuple[str, str]:
    for name, saved_tables in tables.items():
        marks = {chain for table in saved_tables if table.name == "mangle" for chain in table.chains} & HINTS
        if marks:
            return name, f"the kubelet's chain {min(marks)} is there"
    counts = {name: sum(len(table.rules) for table in held) for name, held in tables.items()}
    name = max(tables, key=lambda each: counts[each])  # the first of equals: nft
    if counts[name]:
        return name, f"it holds {counts[name]} rules"
    return name, "no backend holds rules"


async def _prefixes(name: str) -> dict[int, str]:
    """Programs named after the backend, else the plain ones when they are of this backend."""
    named = {family: found(f"{PROGRAM[family]}-{name}-save") for family in FAMILIES}
    if all(named.values()):
        return {family: path.removesuffix("-save") for family, path in named.items()}
    plain = found(PROGRAM[4])
    if plain and await _backend_of(plain) == name:
        return _family_paths(plain)
    raise DriverError(ErrorKind.ABSENT, f"{PROGRAM[4]}-{name}-save", "find", "install the package iptables")


async def _of_path(path: str) -> Backend:
    name = await _backend_of(path)
    return Backend(name=name, reason=f"iptables_path is {path}", prefix=_family_paths(path))


async def _backend_of(path: str) -> str:
    version = await run([path, "-V"], "read version")
    return "nft" if "nf_tables" in version else "legacy"


def _family_paths(path: str) -> dict[int, str]:
    base = Path(path)
    return {4: path, 6: str(base.with_name(base.name.replace("iptables", "ip6tables", 1)))}
