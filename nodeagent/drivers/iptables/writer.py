"""What both writers promise, and what they share: everything but the write itself."""

from __future__ import annotations

import abc
from typing import Protocol

from nodeagent.drivers.iptables import marks
from nodeagent.drivers.iptables.difference import Change, difference, line_changes
from nodeagent.drivers.iptables.programs import Backend, saved_mangle
from nodeagent.drivers.iptables.reading import ChainReading, reading_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import MarkState, Rule


class RuleWriter(Protocol):
    """Own chains and jumps of the mangle table. Every verb is one attempt and raises DriverError."""

    backend: str
    """nft | legacy"""

    async def read(self, family: int) -> ChainReading:
        """What the kernel holds of ours, whole."""

    async def ensure(self, wanted: MarkState) -> tuple[str, ...]:
        """Make own chains, their rules and jumps those of `wanted`, in one write; what was written.

        Nothing is written, and () returned, when all is as wanted. Chains of ours that `wanted` lacks go.
        Rules of LINE_CHAINS stay as they are. busy: somebody else is writing, or has changed the table
        since it was read.
        """

    async def ensure_lines(self, family: int, chain: str, rules: tuple[Rule, ...]) -> dict[str, DriverError]:
        """Make the rules of an own chain those given, one write each, in any order; what was refused.

        A refused rule is keyed by its arguments (absent: its cgroup is gone, or this backend takes no cgroup
        rules: legacy). Raises only when the chain cannot be read, or is not there (absent).
        """

    async def remove(self, family: int) -> tuple[str, ...]:
        """Delete every chain of ours and every jump into one; what was written, () when there was none."""

    async def mark_users(self, mask: int) -> tuple[str, ...]:
        """Foreign rules, of both backends and families, that use a bit of the packet mark under `mask`."""


class Rules(abc.ABC):
    """The shared half of a RuleWriter; see there."""

    backend: str

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read(self, family: int) -> ChainReading:
        """See RuleWriter."""
        return reading_of(await saved_mangle(self._backend, family), family)

    async def ensure(self, wanted: MarkState) -> tuple[str, ...]:
        """See RuleWriter."""
        change = difference(await saved_mangle(self._backend, wanted.family), wanted)
        if change.lines:
            await self._write(wanted.family, change)
        return change.lines

    async def remove(self, family: int) -> tuple[str, ...]:
        """See RuleWriter."""
        return await self.ensure(MarkState(family=family))

    async def ensure_lines(self, family: int, chain: str, rules: tuple[Rule, ...]) -> dict[str, DriverError]:
        """See RuleWriter."""
        table = await saved_mangle(self._backend, family)
        surplus, missing = line_changes(table, chain, rules)
        if missing and chain not in table.chains:
            raise DriverError(ErrorKind.ABSENT, chain, "write rules", "the chain is not there")
        refused = {}
        for delete, arguments in [*((True, a) for a in surplus), *((False, a) for a in missing)]:
            try:
                await self._write_line(family, chain, arguments, delete=delete)
            except DriverError as error:
                refused[arguments] = _gone_cgroup(error, arguments)
        return refused

    async def mark_users(self, mask: int) -> tuple[str, ...]:
        """See RuleWriter."""
        return await marks.mark_users(mask)

    @abc.abstractmethod
    async def _write(self, family: int, change: Change) -> None:
        """All of `change` or nothing of it."""

    @abc.abstractmethod
    async def _write_line(self, family: int, chain: str, arguments: str, *, delete: bool) -> None:
        """Append or delete one rule of an own chain."""


def _gone_cgroup(error: DriverError, arguments: str) -> DriverError:
    """The kernel says only "invalid argument" when the path of a cgroup match does not exist."""
    if "-m cgroup" not in arguments or error.kind is not ErrorKind.INVALID:
        return error
    return DriverError(ErrorKind.ABSENT, error.target, error.op, f"no such cgroup ({error.detail})")
