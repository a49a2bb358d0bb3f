"""Events and waiting, as the real pynvml meets them in the scripted NVML library."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.control import EVENTS_KEPT, FakeNvml
from tests.fakenvml.probe import Probes

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")

REGISTER = (
    "s = n.nvmlEventSetCreate(); n.nvmlDeviceRegisterEvents(h, n.nvmlDeviceGetSupportedEventTypes(h), s)"
)
NOW = "n.nvmlEventSetWait_v2(s, 0)"
NO_INSTANCE = 0xFFFFFFFF


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """A healthy idle node of eight H100."""
    fake = FakeNvml(tmp_path / "scenario")
    fake.start("H100")
    return fake


@pytest.fixture
def probe(fake: FakeNvml) -> Iterator[Probes]:
    """Start children with pynvml, and end them all."""
    with Probes(fake.environment) as probes:
        yield probes


# what is raised (kind, data, gi, ci) and what arrives (type, data, gi, ci)
EVENTS: list[tuple[tuple[Any, ...], tuple[int, ...]]] = [
    (("xid", 79, None, None), (0x8, 79, NO_INSTANCE, NO_INSTANCE)),
    (("xid", 173, None, None), (0x8, 999, NO_INSTANCE, NO_INSTANCE)),
    (("xid", 94, 3, 0), (0x8, 94, 3, 0)),
    (("sbe", 0, None, None), (0x1, 0, NO_INSTANCE, NO_INSTANCE)),
    (("dbe", 0, None, None), (0x2, 0, NO_INSTANCE, NO_INSTANCE)),
    (("mig", 1, None, None), (0x100, 1, NO_INSTANCE, NO_INSTANCE)),
    (("unavailable", 0, None, None), (0x4000, 0, NO_INSTANCE, NO_INSTANCE)),
    (("recovery_action", 2, None, None), (0x8000, 2, NO_INSTANCE, NO_INSTANCE)),
]


def test_each_kind_of_event_arrives_as_raised(fake: FakeNvml, probe: Probes) -> None:
    """Type, data and instances arrive in the order of the ids; a newer Xid arrives as 999."""
    child = probe()
    child.do(REGISTER)
    for raised, _ in EVENTS:
        fake.add_event(0, *raised)
    for raised, expected in EVENTS:
        event = child.do(NOW)
        named = (event["eventType"], event["eventData"], event["gpuInstanceId"], event["computeInstanceId"])
        assert named == expected, raised
        assert event["device"] == child.do("h")
    assert child.code(NOW) == 10


def test_what_came_before_the_registration_is_lost(fake: FakeNvml, probe: Probes) -> None:
    """Only an event raised after a GPU was registered arrives, and for that GPU alone."""
    child = probe()
    fake.add_event(0, "xid", 48)
    child.do(REGISTER)
    fake.add_event(1, "xid", 63)
    assert child.code(NOW) == 10
    child.do("n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(1), 8, s)")
    assert child.code(NOW) == 10
    fake.add_event(1, "xid", 64)
    assert child.do(NOW)["eventData"] == 64


def test_each_set_gets_each_event_once(fake: FakeNvml, probe: Probes) -> None:
    """Two sets of one process and one of another get the same event, each once."""
    one, other = probe(), probe()
    one.do(REGISTER)
    one.do("t = n.nvmlEventSetCreate(); n.nvmlDeviceRegisterEvents(h, 8, t)")
    other.do(REGISTER)
    fake.add_event(0, "xid", 95)
    for child, expression in ((one, NOW), (one, NOW.replace("(s", "(t")), (other, NOW)):
        assert child.do(expression)["eventData"] == 95
        assert child.code(expression) == 10


def test_a_waiting_call_hears_at_once(fake: FakeNvml, probe: Probes) -> None:
    """An event ends a wait long before its timeout."""
    child = probe()
    child.do(REGISTER)
    waiting = child.start("n.nvmlEventSetWait_v2(s, 60000)")
    assert not waiting.done(0.1)
    fake.add_event(0, "xid", 119)
    assert waiting.result(10)["eventData"] == 119


def test_a_wait_lasts_its_timeout(probe: Probes) -> None:
    """Without an event a wait returns TIMEOUT, not before its time."""
    child = probe()
    child.do(REGISTER)
    begun = time.monotonic()
    assert child.code("n.nvmlEventSetWait_v2(s, 150)") == 10
    assert time.monotonic() - begun >= 0.15


def test_a_lost_gpu_ends_every_wait(fake: FakeNvml, probe: Probes) -> None:
    """The Xid of a dying GPU arrives, then every wait is GPU_IS_LOST at once, until the set is rebuilt."""
    child = probe()
    child.do(REGISTER)
    child.do("g = n.nvmlDeviceGetHandleByIndex(1); n.nvmlDeviceRegisterEvents(g, 8, s)")
    waiting = child.start("n.nvmlEventSetWait_v2(s, 60000)")
    with fake.edit() as lines:
        lines += ["event 1 0 xid 79", "gpu 0 state lost"]
    assert waiting.result(10)["eventData"] == 79
    for _ in range(3):
        assert child.code("n.nvmlEventSetWait_v2(s, 60000)") == 15
    child.do("n.nvmlEventSetFree(s); s = n.nvmlEventSetCreate(); n.nvmlDeviceRegisterEvents(g, 8, s)")
    assert child.code("n.nvmlDeviceRegisterEvents(h, 8, s)") == 15
    fake.add_event(1, "xid", 13)
    assert child.do(NOW)["eventData"] == 13


@pytest.mark.parametrize(
    ("change", "code"), [("n.nvmlEventSetFree(s)", 2), ("n.nvmlShutdown()", 1)], ids=["freed", "shut down"]
)
def test_a_wait_does_not_outlive_its_set(fake: FakeNvml, probe: Probes, change: str, code: int) -> None:
    """A set freed or a library shut down under a waiting thread ends the wait without a crash."""
    child = probe()
    child.do(REGISTER)
    waiting = child.start("n.nvmlEventSetWait_v2(s, 60000)")
    assert not waiting.done(0.1)
    child.do(change)
    fake.set_gpu(7, "temperature", 35)
    assert waiting.code() == code
    assert child.code(NOW) == code


def test_a_driver_change_ends_a_wait(fake: FakeNvml, probe: Probes) -> None:
    """A wait begun under the old driver returns the stale code."""
    child = probe()
    child.do(REGISTER)
    waiting = child.start("n.nvmlEventSetWait_v2(s, 60000)")
    assert not waiting.done(0.1)
    fake.set_driver("590.44.01")
    assert waiting.code() == 999
    assert child.code(NOW) == 999


def test_unsupported_types_are_refused(fake: FakeNvml, probe: Probes) -> None:
    """An old driver knows no newer events, and a GPU without MIG no MIG events."""
    fake.start("A100")
    child = probe()
    assert child.do("n.nvmlDeviceGetSupportedEventTypes(h)") == 0x11F
    child.do("s = n.nvmlEventSetCreate()")
    assert child.code("n.nvmlDeviceRegisterEvents(h, 0x8000, s)") == 3
    assert child.code("n.nvmlDeviceRegisterEvents(h, 0x8, s)") == 0
    fake.start("L4")
    assert not probe().do("n.nvmlDeviceGetSupportedEventTypes(h)") & 0x100


def test_a_flood_keeps_the_newest(fake: FakeNvml, probe: Probes) -> None:
    """More events than are kept lose the oldest, and ids go on growing."""
    child = probe()
    child.do(REGISTER)
    with fake.edit() as lines:
        lines += [f"event {number} 0 xid 95" for number in range(1, EVENTS_KEPT + 1)]
    last = fake.add_event(0, "xid", 48)
    assert last == EVENTS_KEPT + 1
    assert fake.path.read_text().count("\nevent ") == EVENTS_KEPT
    child.do(f"seen = [{NOW}.eventData for _ in range({EVENTS_KEPT})]")
    assert child.do("seen[-1]") == 48
    assert child.code(NOW) == 10


def test_a_fresh_start_goes_on_counting(fake: FakeNvml, probe: Probes) -> None:
    """An event set in use hears the first event after the scenario was begun anew."""
    child = probe()
    fake.add_event(0, "xid", 13)
    child.do(REGISTER)
    fake.start("H100")
    fake.add_event(0, "xid", 31)
    assert child.do(NOW)["eventData"] == 31


def test_a_driver_unbind_is_a_system_event(fake: FakeNvml, probe: Probes) -> None:
    """Bind and unbind arrive through system event sets; a timeout is an empty list."""
    child = probe()
    child.do(
        "import ctypes\n"
        "s = n.nvmlSystemEventSetCreate(n.nvmlSystemEventSetCreateRequest_v1)\n"
        "n.nvmlSystemRegisterEvents(n.nvmlSystemRegisterEventRequest_v1, 3, s)\n"
        "room = (n.c_nvmlSystemEventData_v1_t * 4)()\n"
        "wait = lambda ms: n.nvmlSystemEventSetWait(n.nvmlSystemEventSetWaitRequest_v1, s, ms, room, 4)"
    )
    assert child.do("wait(0)") == []
    waiting = child.start("wait(60000)")
    fake.add_system_event("unbind", 7)
    assert waiting.result(10) == [{"eventType": 1, "gpuId": 7}]
    fake.add_system_event("bind", 7)
    assert child.do("wait(0)") == [{"eventType": 2, "gpuId": 7}]
    assert child.code("n.nvmlSystemEventSetFree(n.nvmlSystemEventSetFreeRequest_v1, s)") == 0
    assert child.code("n.nvmlSystemEventSetFree(n.nvmlSystemEventSetFreeRequest_v1, s)") == 2
