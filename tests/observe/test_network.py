"""The link sampler: what wakes it, what it tells, and how little a storm of events costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe import network as module
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.network import LinkSampler
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import LinkState, Pod, PodList, PodPhase, Uplink
from tests.drivers.rig import check_leaks, until

ETH0 = Uplink(name="eth0", index=2, mtu=1500, operational=True, rx_bytes=1, tx_bytes=1)
STATE = LinkState(
    uplinks=(ETH0,), on_link_prefixes=(), own_addresses=("10.0.0.2",), pod_links=(), host_namespace=True
)


class Reader:
    """Gives what the test has put into it."""

    def __init__(self) -> None:
        self.state: LinkState | DriverError = STATE
        self.devices = frozenset({1, 2})
        self.asked: list[tuple[dict[str, str], tuple[str, ...]]] = []

    async def read(self, owners: Mapping[str, str], uplinks: tuple[str, ...]) -> LinkState:
        """The state; what it was asked for is kept."""
        self.asked.append((dict(owners), uplinks))
        if isinstance(self.state, DriverError):
            raise self.state
        return self.state


class Rig:
    """A sampler with gaps of a hundredth of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GAP_SECONDS", 0.01)
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
        self.board, self.inbox, self.reader = Board(SystemClock()), Inbox(), Reader()
        self.moved: list[int] = []
        self.sampler = self._sampler()

    def _sampler(self) -> LinkSampler:
        return LinkSampler(
            self.reader, self.board, self.inbox, SystemClock(), on_devices=lambda: self.moved.append(1)
        )

    def with_allowance(self, monkeypatch: pytest.MonkeyPatch, *, saved_seconds: float) -> LinkSampler:
        """A sampler that has saved up that much."""
        monkeypatch.setattr(module, "SAVED_SECONDS", saved_seconds)
        return self._sampler()

    def value(self) -> object:
        """What the board says."""
        reading = self.board.readings().get(SignalKey("net.links", NODE))
        return None if reading is None else reading.value

    async def again(self) -> None:
        """Ask for another read and wait for it."""
        reads = len(self.reader.asked)
        self.sampler.request_now()
        await until(lambda: len(self.reader.asked) > reads)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` beside the sampler after its first read; nothing is left open."""

        async def whole() -> None:
            task = asyncio.create_task(self.sampler.run())
            try:
                await until(lambda: self.value() is not None)
                await asyncio.wait_for(main(), 30)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        check_leaks(whole())


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A sampler."""
    return Rig(monkeypatch)


def test_the_pods_on_the_board_are_looked_for(rig: Rig) -> None:
    """Addresses of running pods with a network of their own; not of finished ones or the host's."""
    pods = [
        Pod(uid="a", namespace="n", name="a", addresses=("10.1.0.1", "fd00::1")),
        Pod(uid="b", namespace="n", name="b", addresses=("10.1.0.1",), phase=PodPhase.SUCCEEDED),
        Pod(uid="c", namespace="n", name="c", addresses=("10.0.0.2",), host_network=True),
    ]
    rig.board.put("pods", NODE, PodList(source="file", pods=tuple(pods)))

    async def main() -> None:
        rig.sampler.apply(("eth0",))
        await until(lambda: len(rig.reader.asked) > 1)

    rig.run(main)
    assert rig.reader.asked[0] == ({"10.1.0.1": "a", "fd00::1": "a"}, ("auto",))
    assert rig.reader.asked[-1][1] == ("eth0",)


def test_only_a_change_of_shape_asks_for_a_cycle(rig: Rig) -> None:
    """Byte counters that grow are put on the board quietly; an uplink that goes down is not quiet."""

    async def main() -> None:
        assert rig.inbox.urgent.is_set()
        rig.inbox.drain()
        for uplink, urgent in (
            (msgspec.structs.replace(ETH0, rx_bytes=99), False),
            (msgspec.structs.replace(ETH0, operational=False), True),
        ):
            rig.reader.state = msgspec.structs.replace(STATE, uplinks=(uplink,))
            await rig.again()
            assert rig.value() == rig.reader.state
            assert rig.inbox.urgent.is_set() is urgent

    rig.run(main)


def test_a_device_that_comes_is_told(rig: Rig) -> None:
    """Once for each change of the set of devices, also when nothing else shows it yet; not at start."""

    async def main() -> None:
        await rig.again()
        assert rig.moved == []
        original = rig.reader.read

        async def read(owners: Mapping[str, str], uplinks: tuple[str, ...]) -> LinkState:
            rig.reader.devices = frozenset({1, 2, 7})
            return await original(owners, uplinks)

        rig.reader.read = read  # type: ignore[method-assign]
        await rig.again()
        await rig.again()
        assert rig.moved == [1]

    rig.run(main)


def test_what_cannot_be_read_is_unread(rig: Rig) -> None:
    """An interrupted dump is UNREAD with its kind, and the next good read replaces it."""

    async def main() -> None:
        rig.reader.state = DriverError(ErrorKind.BUSY, "rtnetlink", "dump", "interrupted")
        await rig.again()
        value = rig.value()
        assert isinstance(value, Unread) and value.kind is ErrorKind.BUSY
        rig.reader.state = STATE
        await rig.again()
        assert rig.value() == STATE

    rig.run(main)


def test_a_storm_of_events_is_a_few_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand wake-ups within the gap are one read more."""
    monkeypatch.setattr(module, "GAP_SECONDS", 0.2)

    async def main() -> None:
        for _ in range(100):
            for _ in range(10):
                rig.sampler.request_now()
            await asyncio.sleep(0)
        await until(lambda: len(rig.reader.asked) > 1)
        assert len(rig.reader.asked) == 2

    rig.run(main)


def test_slow_reads_make_the_next_one_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the allowance is used up: the pause is a hundred times what a read took."""
    rig.sampler = rig.with_allowance(monkeypatch, saved_seconds=0.0)
    original = rig.reader.read

    async def slow(owners: Mapping[str, str], uplinks: tuple[str, ...]) -> LinkState:
        await asyncio.sleep(0.02)
        return await original(owners, uplinks)

    rig.reader.read = slow  # type: ignore[method-assign]

    async def main() -> None:
        rig.sampler.request_now()
        await asyncio.sleep(0.5)
        assert len(rig.reader.asked) == 1

    rig.run(main)


def test_a_slow_first_read_makes_no_change_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of a busy node a read takes long; an uplink that is renamed right after it is seen."""
    original = rig.reader.read

    async def slow(owners: Mapping[str, str], uplinks: tuple[str, ...]) -> LinkState:
        await asyncio.sleep(0.3 if not rig.reader.asked else 0)
        return await original(owners, uplinks)

    rig.reader.read = slow  # type: ignore[method-assign]

    async def main() -> None:
        rig.reader.state = msgspec.structs.replace(STATE, uplinks=())
        await rig.again()
        await until(lambda: rig.value() == rig.reader.state)

    rig.run(main)
