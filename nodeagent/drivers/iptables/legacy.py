"""The writer for hosts with legacy iptables: python-iptables, under the lock that iptables itself takes.

The kernel takes a legacy table only as a whole, so a write made from an old copy would undo what another
process did since. Hence the lock is held from the copy to the write, and never waited for. The library
keeps process-wide state: it is used by one thread only, and this module is imported on legacy hosts only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from nodeagent.drivers.iptables.difference import Change
from nodeagent.drivers.iptables.programs import Backend, kind_of
from nodeagent.drivers.iptables.reading import TABLE, is_own
from nodeagent.drivers.iptables.text import segments
from nodeagent.drivers.iptables.writer import Rules
from nodeagent.errors import DriverError, ErrorKind

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it asks distutils for a path
    import iptc

LOCK = "/run/xtables.lock"
LOCK_VARIABLE = "XTABLES_LOCKFILE"
"""iptables reads the same variable: whoever moves the lock moves it for both."""


class LegacyRules(Rules):
    """See RuleWriter."""

    backend = "legacy"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._thread = threading.get_ident()

    async def _write(self, family: int, change: Change) -> None:
        with self._table(family) as table:
            _apply(table, family, change)

    async def _write_line(self, family: int, chain: str, arguments: str, *, delete: bool) -> None:
        if not delete:
            _expect_lasting(arguments)
        with self._table(family) as table:
            target = iptc.Chain(table, chain)
            rule = _built(family, target, arguments)
            if delete:
                target.delete_rule(rule)
            else:
                target.append_rule(rule)

    @contextlib.contextmanager
    def _table(self, family: int) -> Iterator[Any]:
        """A fresh copy of the table under the lock, committed at the end unless the body failed."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("python-iptables is used by one thread only")
        with _locked(), _errors():
            kind = iptc.Table if family == 4 else iptc.Table6
            table = kind(TABLE, autocommit=False)
            try:
                table.refresh()
                yield table
                table.commit()
            finally:
                table.close()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    path = os.environ.get(LOCK_VARIABLE) or LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = ErrorKind.DENIED if isinstance(error, PermissionError) else ErrorKind.INVALID
        raise DriverError(kind, path, "lock", error.strerror or "") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise DriverError(ErrorKind.BUSY, path, "lock", "another process holds the xtables lock") from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (iptc.IPTCError, iptc.errors.XTablesError, ValueError, AttributeError) as error:
        text = str(error).replace("b'", "").rstrip("'")
        raise DriverError(kind_of(text), TABLE, "write rules", text) from error


def _apply(table: Any, family: int, change: Change) -> None:
    for chain in (*change.fill, *change.drop):
        if table.is_chain(chain):
            table.flush_entries(chain)
        else:
            table.create_chain(chain)
    for chain in dict.fromkeys(rule.chain for rule in change.unlink):
        _unlink(table, chain)
    for rule in reversed(change.link):
        target = iptc.Chain(table, rule.chain)
        target.insert_rule(_built(family, target, rule.arguments))
    for chain, rules in change.fill.items():
        target = iptc.Chain(table, chain)
        for arguments in rules:
            _expect_lasting(arguments)
            target.append_rule(_built(family, target, arguments))
    for chain in change.drop:
        table.delete_chain(chain)


def _expect_lasting(arguments: str) -> None:
    """Refuse a match on a cgroup: the kernel checks every rule of the table again at each write by anybody.

    Once the cgroup has ended, that check fails, and with it every write of the table by every agent.
    """
    if any(segment[:2] == ("-m", "cgroup") for segment in segments(arguments)):
        detail = "legacy iptables cannot be written any more while a rule names a cgroup that has ended"
        raise DriverError(ErrorKind.ABSENT, TABLE, "write rules", detail)


def _unlink(table: Any, chain: str) -> None:
    """Delete each jump into an own chain, found by where it leads: that loads no foreign extension."""
    numbers, number, entry = list[int](), 0, table.first_rule(chain)
    while entry:
        target = table.get_target(entry)
        if is_own(target.decode() if isinstance(target, bytes) else target):
            numbers.append(number)
        number, entry = number + 1, table.next_rule(entry)
    for number in reversed(numbers):
        # The library has no public call that deletes by position, and by content it would have to parse.
        table._iptc.iptc_delete_num_entry(chain.encode(), number, table._handle)


def _built(family: int, chain: Any, arguments: str) -> Any:
    """The library's rule for canonical arguments; DriverError(invalid) for what it has no words for."""
    rule = (iptc.Rule if family == 4 else iptc.Rule6)(chain=chain)
    target = ""
    for segment in segments(arguments):
        if segment[0] == "-i":
            rule.in_interface = segment[1]
        elif segment[0] == "-o":
            rule.out_interface = segment[1]
        elif segment[0] == "-s":
            rule.src = segment[1]
        elif segment[0] == "-d":
            rule.dst = segment[1]
        elif segment[0] == "-m" and "!" not in segment:
            _set_options(rule.create_match(segment[1]), segment[2:])
        elif segment[0] == "-j":
            target = segment[1]
            _set_options(rule.create_target(target), segment[2:])
        else:
            detail = f"cannot write {' '.join(segment)!r} in {arguments!r}"
            raise DriverError(ErrorKind.INVALID, TABLE, "write rules", detail)
    if not target:
        rule.create_target("")  # a rule that only counts
    return rule


def _set_options(part: Any, options: tuple[str, ...]) -> None:
    grouped: dict[str, list[str]] = {}
    name = ""
    for word in options:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            grouped[name] = []
        else:
            grouped[name].append(word)
    for name, values in grouped.items():
        setattr(part, name, values if len(values) > 1 else "".join(values))
