"""What the socket does with `nodeagent silence` and `unsilence`: judges what was typed, waits, answers.

It changes nothing itself: a command goes through the inbox to the next cycle, and the answer tells
what that cycle has made of it. An answer that tells of a silence is given once it is saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import msgspec

from nodeagent.config.values import nearest
from nodeagent.decide.silences import MAX_SILENCES, owner
from nodeagent.memory import Memory, Silence
from nodeagent.model import NODE
from nodeagent.observe.inbox import Inbox
from nodeagent.report import schema, silences
from nodeagent.report.given import ReportInput, target_label
from nodeagent.report.routes import BadRequest, CommandAnswer
from nodeagent.report.silence_schema import SilenceStatus
from nodeagent.signals import SilenceCommand

NAME_SECONDS = 2.0
"""A user's name that takes longer to find is left out."""


async def _nothing() -> None:
    """Nothing is saved where nobody said how."""


class SilenceSurface:
    """Silences as the socket sees them."""

    def __init__(
        self, *, given: Callable[[], ReportInput], inbox: Inbox, next_cycle: Callable[[], Awaitable[None]],
        known_checks: frozenset[str], user_name: Callable[[int, str], str],
    ) -> None:
        """`user_name` gets a uid and the host's root, and may be slow."""
        self._given = given
        self._inbox = inbox
        self._next_cycle = next_cycle
        self._known_checks = known_checks
        self._user_name = user_name
        self.saved: Callable[[], Awaitable[None]] = _nothing
        """Returns once the state file has what the last cycle remembers, or cannot be written."""

    def report(self) -> bytes:
        """Those that stand, schema nodeagent/silence/v1."""
        return schema.encode(silences.build_silences(self._given()))

    async def begin(self, asked: tuple[SilenceCommand, ...]) -> CommandAnswer:
        """One silence for each command, all of one target and one person. Raises BadRequest."""
        given, warning = self._given(), ""
        commands: list[SilenceCommand] = []
        for command in asked:
            if command.check not in self._known_checks:
                hint = nearest(command.check, self._known_checks)
                raise BadRequest(f"no check {command.check!r}; {hint}")
            target, is_reported = _target(command, given)
            warning = warning or ("" if is_reported else _unreported(command))
            commands.append(msgspec.structs.replace(command, target=target))
        self._require_room(commands, given.memory)
        await self._carry_out(commands)
        wanted = {(command.check, command.target) for command in commands}
        begun = [s for s in silences.build_silences(self._given()).silences if (s.check, s.target) in wanted]
        if len(begun) < len(wanted):
            return CommandAnswer(ok=False, sentence="the silence was not taken; see nodeagent status")
        return CommandAnswer(ok=True, sentence=_begun_sentence(begun) + warning)

    async def end(self, asked: tuple[SilenceCommand, ...]) -> CommandAnswer:
        """End the silences of these numbers. Raises BadRequest."""
        standing = {silence.number: silence for silence in self._given().memory.silences}
        for command in asked:
            if command.ends not in standing:
                known = ", ".join(map(str, sorted(standing))) or "none"
                raise BadRequest(f"no silence {command.ends} stands; there are {known}")
        await self._carry_out(list(asked))
        ended = [_named(standing[command.ends or 0], self._given().memory) for command in asked]
        return CommandAnswer(ok=True, sentence=f"not silenced any more: {', '.join(ended)}")

    def _require_room(self, commands: list[SilenceCommand], memory: Memory) -> None:
        standing = {(silence.check, silence.target) for silence in memory.silences}
        fresh = {(command.check, command.target) for command in commands} - standing
        if len(standing) + len(fresh) > MAX_SILENCES:
            raise BadRequest(
                f"{len(standing)} silences stand, and at most {MAX_SILENCES} may; "
                "end some: nodeagent silence --list"
            )

    async def _carry_out(self, commands: list[SilenceCommand]) -> None:
        name = await self._name(commands[0].user_id)
        for command in commands:
            self._inbox.put(msgspec.structs.replace(command, user_name=name), urgent=True)
        await self._next_cycle()
        await self.saved()

    async def _name(self, user_id: int | None) -> str:
        if user_id is None:
            return ""
        host_root = self._given().settings.node.host_root
        loop = asyncio.get_running_loop()
        found: asyncio.Future[str] = loop.create_future()

        def look() -> None:
            name = self._user_name(user_id, host_root)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, found, name)

        # A directory service may hang: a daemon thread keeps neither the loop nor the end waiting.
        threading.Thread(target=look, daemon=True).start()
        try:
            async with asyncio.timeout(NAME_SECONDS):
                return await found
        except TimeoutError:
            return ""


def _settle(found: asyncio.Future[str], name: str) -> None:
    if not found.done():
        found.set_result(name)


def _target(command: SilenceCommand, given: ReportInput) -> tuple[str, bool]:
    """The target that is meant, and whether the check reports it now. Raises BadRequest for no such GPU."""
    said = command.target
    reported = {row.target for row in given.check_rows if row.id == command.check}
    if said == "" or said in reported:
        return said, True
    gpus = given.memory.gpus
    pci = next((pci for pci, gpu in gpus.items() if said in (pci, gpu.uuid, str(gpu.index))), None)
    if pci is not None and (pci in reported or reported <= {NODE}):
        return pci, pci in reported
    if reported & set(gpus):
        known = ", ".join(f"{gpu.index} = {pci}" for pci, gpu in sorted(gpus.items()) if pci in reported)
        raise BadRequest(f"{command.check} has no target {said!r} on this node; known are {known}")
    return said, False


def _unreported(command: SilenceCommand) -> str:
    return f" ({command.check} reports no {command.target!r} now: it counts from when it does)"


def _begun_sentence(begun: list[SilenceStatus]) -> str:
    one = len(begun) == 1
    names = ", ".join(f"{silence.check} ({silence.number})" for silence in begun)
    until = begun[0].until.replace("T", " ").removesuffix("Z")
    numbers = " ".join(str(silence.number) for silence in begun)
    return (
        f"silenced until {until} UTC by {begun[0].owner}, {begun[0].target_label}: {names}; "
        f"{'it stays' if one else 'they stay'} shown, only the taint is held; "
        f"to end {'it' if one else 'them'}: nodeagent unsilence {numbers}"
    )


def _named(silence: Silence, memory: Memory) -> str:
    where = f" on {target_label(silence.target, memory)}" if silence.target else ""
    return f"{silence.check}{where} (by {owner(silence)})"
