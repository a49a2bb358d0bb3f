"""The ops on the kernel's marks: sets, entries, chains, jumps. One attempt each, idempotent.

What an op does not name it leaves as it is: a rule op reads what is there, changes its own part and
writes the difference. Nothing here decides what is wanted; foreign chains and sets are out of reach,
because the drivers refuse every name that is not ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

from nodeagent.drivers.ipset import SetEntry, SetReading, SetSpec
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import Op
from nodeagent.traffic import CHAIN_PREFIX, HTB_MAJOR, MarkState, Rule


class Reading(Protocol):
    """What a rule writer read of one family."""

    @property
    def state(self) -> MarkState:
        """Own chains, rules and jumps."""


class Rules(Protocol):
    """What writes iptables rules of ours."""

    async def read(self, family: int) -> Reading:
        """Own chains, rules and jumps of one family."""

    async def ensure(self, wanted: MarkState) -> tuple[str, ...]:
        """Make own chains and jumps equal; returns what was written."""

    async def ensure_lines(self, family: int, chain: str, rules: tuple[Rule, ...]) -> dict[str, DriverError]:
        """Make a chain of independent lines equal, each in a write of its own."""


class Sets(Protocol):
    """What writes ipsets of ours."""

    async def read(self) -> dict[str, SetReading]:
        """Whole sets of ours."""

    async def ensure(self, spec: SetSpec) -> bool:
        """Create a set."""

    async def add(self, spec: SetSpec, entries: Iterable[SetEntry]) -> None:
        """Add or overwrite entries."""

    async def delete(self, spec: SetSpec, values: Iterable[str]) -> None:
        """Delete entries; an absent one is fine."""

    async def destroy(self, name: str) -> None:
        """Remove a set; absent is fine."""


class KernelMarks:
    """Carries out the ops of the kernel executor."""

    def __init__(self, rules: Rules, sets: Sets) -> None:
        self._rules = rules
        self._sets = sets
        self._verbs: dict[str, Callable[[Op], Awaitable[str]]] = {
            "set.create": self._create_set,
            "set.cluster": self._change_cluster,
            "entries.delete": self._delete_entries,
            "entries.put": self._put_entries,
            "chain.put": self._put_chain,
            "host_pods.put": self._put_host_pods,
            "jumps.put": self._put_jumps,
            "chain.delete": self._delete_chain,
            "set.destroy": self._destroy_set,
        }

    async def perform(self, op: Op) -> str:
        """Carry out one op; DriverError(invalid) for an op that this executor does not know."""
        verb = self._verbs.get(op.kind)
        if verb is None:
            raise DriverError(ErrorKind.INVALID, op.target, op.kind, "the kernel executor knows no such op")
        return await verb(op)

    # ------------------------------------------------------------------ sets

    async def _create_set(self, op: Op) -> str:
        created = await self._sets.ensure(SetSpec(name=op.target, **op.arguments))
        return "created" if created else "was there"

    async def _change_cluster(self, op: Op) -> str:
        spec = SetSpec(name=op.target, kind="hash:net", family=op.arguments["family"])
        await self._sets.add(spec, [SetEntry(value=prefix) for prefix in op.arguments["add"]])
        await self._sets.delete(spec, op.arguments["delete"])
        return f"{len(op.arguments['add'])} added, {len(op.arguments['delete'])} deleted"

    async def _delete_entries(self, op: Op) -> str:
        for spec in _pod_sets(op.arguments["family"]):
            await self._sets.delete(spec, op.arguments["addresses"])
        return f"{len(op.arguments['addresses'])} deleted"

    async def _put_entries(self, op: Op) -> str:
        entries = op.arguments["entries"]
        fresh = [entry["address"] for entry in entries if entry["fresh"]]
        out, received = _pod_sets(op.arguments["family"])
        for spec in (out, received):
            if fresh:
                await self._sets.delete(spec, fresh)
            await self._sets.add(spec, [_set_entry(e, op.arguments["mark_mask"]) for e in entries])
        return f"{len(entries)} written"

    async def _destroy_set(self, op: Op) -> str:
        await self._sets.destroy(op.target)
        return "destroyed"

    # ------------------------------------------------------------------ rules

    async def _put_chain(self, op: Op) -> str:
        await self._require(op, op.arguments["requires"])
        state = await self._state(op)
        chains = state.chains if op.target in state.chains else (*state.chains, op.target)
        kept = tuple(rule for rule in state.rules if rule.chain != op.target)
        rules = tuple(Rule(chain=op.target, arguments=text) for text in op.arguments["rules"])
        return await self._write(msgspec.structs.replace(state, chains=chains, rules=(*kept, *rules)))

    async def _put_jumps(self, op: Op) -> str:
        state = await self._state(op)
        kept = tuple(rule for rule in state.jumps if rule.chain != op.target)
        rules = tuple(Rule(chain=op.target, arguments=text) for text in op.arguments["rules"])
        return await self._write(msgspec.structs.replace(state, jumps=(*kept, *rules)))

    async def _delete_chain(self, op: Op) -> str:
        if not op.target.startswith(CHAIN_PREFIX):
            raise DriverError(ErrorKind.INVALID, op.target, op.kind, f"only {CHAIN_PREFIX}* is ours")
        state = await self._state(op)
        chains = tuple(chain for chain in state.chains if chain != op.target)
        rules = tuple(
            rule for rule in state.rules
            if rule.chain != op.target and not _jumps_to(rule, op.target)
        )
        jumps = tuple(rule for rule in state.jumps if not _jumps_to(rule, op.target))
        return await self._write(msgspec.structs.replace(state, chains=chains, rules=rules, jumps=jumps))

    async def _put_host_pods(self, op: Op) -> str:
        state = await self._state(op)
        gone = set(op.arguments["delete"]) | set(op.arguments["add"])
        kept = [r for r in state.rules if r.chain == op.target and r.arguments not in gone]
        added = [Rule(chain=op.target, arguments=text) for text in op.arguments["add"]]
        failed = await self._rules.ensure_lines(state.family, op.target, (*kept, *added))
        if failed:
            text, error = next(iter(failed.items()))
            detail = f"{len(failed)} lines failed, the first: {text}: {error.detail}"
            raise DriverError(error.kind, op.target, op.kind, detail)
        return f"{len(added)} lines"

    async def _state(self, op: Op) -> MarkState:
        return (await self._rules.read(op.arguments["family"])).state

    async def _write(self, wanted: MarkState) -> str:
        return f"{len(await self._rules.ensure(wanted))} lines written"

    async def _require(self, op: Op, members: dict[str, int]) -> None:
        """Refuse a chain whose set is not filled: every packet would look external."""
        held = await self._sets.read() if members else {}
        for name, least in members.items():
            found = len(held[name].entries) if name in held else 0
            if found < least:
                detail = f"set {name} has {found} members, {least} are wanted before the first rule"
                raise DriverError(ErrorKind.INVALID, op.target, op.kind, detail)


def _pod_sets(family: int) -> tuple[SetSpec, SetSpec]:
    """The two pod sets of a family: sent, received."""
    def spec(name: str) -> SetSpec:
        return SetSpec(name=name, kind="hash:ip", family=family, counters=True, comment=True, skbinfo=True)

    return spec(f"nodeagent-out{family}"), spec(f"nodeagent-in{family}")


def _set_entry(entry: dict[str, Any], mark_mask: int) -> SetEntry:
    mark = entry["mark"]
    return SetEntry(
        value=entry["address"], priority=HTB_MAJOR << 16 | entry["minor"], mark=mark,
        mark_mask=mark_mask if mark else 0, comment=entry["comment"],
    )


def _jumps_to(rule: Rule, chain: str) -> bool:
    return rule.arguments.split()[-2:] == ["-j", chain]
