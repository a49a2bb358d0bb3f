"""NVML as a whole fails, hangs, dies, is upgraded or let go: named, survived, and undone when it is over."""

from __future__ import annotations

import asyncio
import os

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.model import NODE
from nodeagent.signals import EccCounters, GpuDriver, GpuPresence, KernelDriver, Unread
from tests.drivers.rig import alive, child_processes, until
from tests.fakenvml.control import FakeNvml, InUseError
from tests.observe.gpu_rig import GpuRig, all_unread, needs_gcc, sampling

pytestmark = needs_gcc

# what nvmlInit answers, the named cause and the kind of the error
INIT_CODES: list[tuple[str, str, ErrorKind]] = [
    ("DRIVER_NOT_LOADED", "absent", ErrorKind.ABSENT),
    ("LIBRARY_NOT_FOUND", "absent", ErrorKind.ABSENT),
    ("LIB_RM_VERSION_MISMATCH", "mismatch", ErrorKind.INVALID),
    ("NOT_READY", "not_ready", ErrorKind.BUSY),
    ("UNKNOWN", "access_lost", ErrorKind.DENIED),
    ("NO_PERMISSION", "access_lost", ErrorKind.DENIED),
    ("OPERATING_SYSTEM", "access_lost", ErrorKind.DENIED),
    ("IRQ_ISSUE", "other", ErrorKind.INVALID),
    ("4242", "other", ErrorKind.INVALID),
]


@pytest.mark.parametrize(("code", "cause", "kind"), INIT_CODES)
def test_a_failing_init_has_a_named_cause(fake: FakeNvml, code: str, cause: str, kind: ErrorKind) -> None:
    """The status names it, the devices are unknown (never "not applicable"), and it heals by itself."""
    rule = fake.add_rule("nvmlInitWithFlags", f"return {code}")

    async def main(rig: GpuRig) -> None:
        await until(lambda: rig.shown.error_kind is not None)
        assert (rig.shown.error_cause, rig.shown.error_kind) == (cause, kind)
        assert "nvmlInit: NVML returned" in rig.shown.error_detail
        await until(lambda: rig.value("gpu.devices") is not None)
        assert rig.value("gpu.devices").kind not in (ErrorKind.ABSENT, None)
        fake.remove(rule)
        await until(lambda: not isinstance(rig.value("gpu.devices"), Unread))
        await until(lambda: rig.shown.error_kind is None)

    sampling(fake, main)


def test_a_lost_permission_blames_no_gpu(fake: FakeNvml) -> None:
    """A10: when every call answers UNKNOWN, all is unread with that cause and no GPU is called lost."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert not all_unread(rig)
        fake.add_rule("*", "return UNKNOWN")
        await until(lambda: rig.shown.error_cause == "access_lost")
        assert rig.shown.error_kind is ErrorKind.DENIED
        assert all_unread(rig)
        assert {rig.value("gpu.presence", n).kind for n in range(8)} == {ErrorKind.DENIED}
        fake.clear_rules()
        await until(lambda: rig.shown.error_kind is None and not all_unread(rig))
        assert rig.value("gpu.presence", 3) == GpuPresence(reachable=True)

    sampling(fake, main)


def test_a_permission_lost_on_device_calls_alone_is_recognised(fake: FakeNvml) -> None:
    """What the library answers from memory does not hide that no device answers any more."""
    live = ["nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"]

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        for name in live:
            fake.add_rule(name, "return UNKNOWN")
        await until(lambda: rig.shown.error_cause == "access_lost")

    sampling(fake, main)


def test_one_gpu_that_answers_unknown_is_not_the_agents_fault(fake: FakeNvml) -> None:
    """The others answer, so only that GPU is unknown."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.add_rule("*", "return UNKNOWN", gpu=3)
        await until(lambda: isinstance(rig.value("gpu.presence", 3), Unread))
        await rig.good_read()
        assert isinstance(rig.value("gpu.presence", 3), Unread)
        assert rig.value("gpu.presence", 4) == GpuPresence(reachable=True)

    sampling(fake, main)


def test_slow_counters_are_read_all_the_same(fake: FakeNvml) -> None:
    """A1: a GPU with 17,000 corrected errors/s whose calls take longer than the deadline keeps being read."""
    fake.raise_ecc(3, per_second=17_000)
    fake.add_rule("nvmlDeviceGetTotalEccErrors", "delay 700", gpu=3)

    async def main(rig: GpuRig) -> None:
        await until(lambda: rig.shown.state == "stuck")
        assert (rig.shown.pending_call or "").startswith("nvmlDeviceGetTotalEccErrors")
        seen: list[int] = []

        def counted_on() -> bool:
            ecc = rig.value("gpu.ecc", 3)
            if isinstance(ecc, EccCounters) and ecc.volatile_corrected not in seen:
                seen.append(ecc.volatile_corrected)
            return len(seen) == 3

        await until(counted_on)
        assert seen == sorted(seen) and seen[-1] - seen[0] > 17_000
        assert rig.worker.status.restarts == 0
        assert rig.value("gpu.ecc", 0) is not None

    sampling(fake, main, kill_seconds=60, stuck_seconds=0.5)


def test_a_hanging_init_leaves_one_process(fake: FakeNvml) -> None:
    """A11: init that blocks for ever is named, killed once counted stuck, retried, and never doubled."""
    before = child_processes()
    fake.add_rule("nvmlInitWithFlags", "block")

    async def main(rig: GpuRig) -> None:
        pids = set()
        while rig.worker.status.restarts < 3:
            await asyncio.sleep(0.02)
            children = child_processes() - before
            assert len(children) <= 1
            pids |= children
            if rig.shown.state == "stuck":
                assert rig.shown.pending_call == "nvmlInit"
        assert len(pids) >= 3
        fake.clear_rules()
        await until(lambda: rig.shown.state == "idle")
        assert rig.shown.error_kind is None

    sampling(fake, main)


def test_a_pending_call_asks_for_an_early_cycle(fake: FakeNvml) -> None:
    """A call that takes longer than two seconds sets the inbox's urgency, with the call on the board."""
    fake.add_rule("nvmlDeviceGetRemappedRows", "block", gpu=2)

    async def main(rig: GpuRig) -> None:
        await asyncio.wait_for(rig.inbox.urgent.wait(), 20)
        assert rig.shown.pending_call == "nvmlDeviceGetRemappedRows 0000:52:00.0"

    sampling(fake, main, call_deadline_seconds=10, stuck_seconds=30, kill_seconds=60)


def test_a_gpu_that_hangs_is_read_last_next_time(fake: FakeNvml) -> None:
    """After one call hung, the GPUs behind it are read before it is tried again."""
    fake.add_rule("nvmlDeviceGetTotalEccErrors", "block", gpu=0)

    async def main(rig: GpuRig) -> None:
        await until(lambda: rig.worker.status.restarts >= 1)
        await until(lambda: rig.value("gpu.presence", 7) == GpuPresence(reachable=True))
        assert rig.value("gpu.ecc", 0) is None

    sampling(fake, main)


def test_values_grow_stale_while_a_call_hangs(fake: FakeNvml) -> None:
    """Nothing good stays on the board of GPUs that can no longer be read."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.add_rule("nvmlDeviceGetCount_v2", "block")
        await until(lambda: all(isinstance(rig.value("gpu.ecc", n), Unread) for n in range(8)))
        assert {rig.value("gpu.ecc", n).kind for n in range(8)} == {ErrorKind.TIMEOUT}

    sampling(fake, main, kill_seconds=60)


def test_a_crash_inside_the_library_is_survived(fake: FakeNvml) -> None:
    """A segmentation fault costs the child, is named with its call, and the next one reads on."""
    fake.add_rule("nvmlDeviceGetName", "kill segv", gpu=5, times=1, node_wide=True)

    async def main(rig: GpuRig) -> None:
        await until(lambda: rig.worker.status.restarts == 1)
        await rig.first_read()
        assert rig.shown.error_kind is None
        assert fake.calls("nvmlInitWithFlags") == 2

    sampling(fake, main)


def test_a_new_driver_gets_a_new_process(fake: FakeNvml) -> None:
    """The library is not used over a driver change: the child is executed anew and reads the new version."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        pid = rig.shown.pid
        fake.set_driver("580.105.08")
        await until(lambda: isinstance(rig.value("gpu.driver"), GpuDriver)
                    and rig.value("gpu.driver").driver_version == "580.105.08")
        await until(lambda: rig.shown.state == "idle")
        assert rig.shown.pid != pid

    sampling(fake, main)


def test_an_unloaded_driver_is_waited_for(fake: FakeNvml) -> None:
    """Between unload and load the cause is "absent" or lost access; afterwards all is read again."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.set_driver("none")
        await until(lambda: rig.shown.error_cause == "absent")
        assert all_unread(rig)
        fake.set_driver("580.95.05")
        await until(lambda: rig.shown.error_kind is None and not all_unread(rig))

    sampling(fake, main)


def test_a_kernel_driver_of_another_version_replaces_the_worker_once(fake: FakeNvml) -> None:
    """The host's word on the kernel module is compared with NVML's; a lasting difference is no loop."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        pid = rig.shown.pid
        rig.board.put("gpu.kernel_driver", NODE, KernelDriver(version="590.10"))
        await until(lambda: rig.worker.status.restarts == 1)
        await until(lambda: rig.shown.state == "idle")
        assert rig.shown.pid != pid
        await rig.good_read()
        await rig.good_read()
        assert rig.worker.status.restarts == 1

    sampling(fake, main)


def test_a_mismatch_ends_early_when_the_kernel_driver_changes(fake: FakeNvml) -> None:
    """The backoff is ten minutes at most, but a newly loaded module ends it at once."""
    fake.set_driver("570.10", library="580.95.05")

    async def main(rig: GpuRig) -> None:
        rig.board.put("gpu.kernel_driver", NODE, KernelDriver(version="570.10"))
        await until(lambda: rig.shown.error_cause == "mismatch")
        await until(lambda: rig.worker.status.state == "backoff")
        fake.set_driver("580.95.05")
        rig.board.put("gpu.kernel_driver", NODE, KernelDriver(version="580.95.05"))
        await until(lambda: rig.shown.error_kind is None)
        assert rig.value("gpu.driver").driver_version == "580.95.05"

    sampling(fake, main, entropy=lambda: 600.0)


def test_a_release_lets_a_reset_succeed(fake: FakeNvml) -> None:
    """The reset is refused while the worker holds NVML, done after the release, and seen after the resume."""
    fake.set_gpu(2, "recovery_action", 1)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        pid = rig.shown.pid
        with pytest.raises(InUseError):
            fake.reset(2)
        await rig.sampler.release()
        assert rig.shown.state == "released"
        assert pid is not None and not alive(pid)
        assert rig.values() == {}
        fake.reset(2)
        rig.sampler.request_now()
        await asyncio.sleep(0.5)
        assert (rig.shown.state, fake.clients()) == ("released", [])
        rig.sampler.resume()
        await until(lambda: rig.value("gpu.recovery_action", 2) is not None)
        assert rig.value("gpu.recovery_action", 2).value == 0
        await until(lambda: rig.shown.state == "idle")

    sampling(fake, main)


def test_a_release_during_a_hung_call_takes_the_process_once_it_is_stuck(fake: FakeNvml) -> None:
    """A stuck process may be killed, so that it does not stand in the way of the cure."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.add_rule("nvmlDeviceGetTotalEccErrors", "block", gpu=1)
        await until(lambda: rig.shown.state == "stuck")
        await rig.sampler.release()
        assert (rig.shown.state, fake.clients()) == ("released", [])

    sampling(fake, main, kill_seconds=600, stop_seconds=0.3)


def test_gpus_that_are_not_wanted_are_left_alone(fake: FakeNvml) -> None:
    """Without an order no process holds NVML and nothing is on the board; the order may come back."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        rig.sampler.set_wanted(False)
        await until(lambda: rig.shown.state == "absent")
        assert (rig.values(), fake.clients()) == ({}, [])
        rig.sampler.set_wanted(True)
        await rig.first_read()
        rig.sampler.set_wanted(False)
        rig.sampler.set_wanted(True)
        await rig.good_read()

    sampling(fake, main)


def test_a_release_outlives_the_wish_for_gpus(fake: FakeNvml) -> None:
    """Released stays released whatever is wanted meanwhile, and a resume obeys the latest wish."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.sampler.release()
        rig.sampler.set_wanted(False)
        rig.sampler.set_wanted(True)
        rig.sampler.set_wanted(False)
        await asyncio.sleep(0.3)
        assert (rig.shown.state, fake.clients()) == ("released", [])
        rig.sampler.resume()
        await until(lambda: rig.shown.state == "absent")
        assert fake.clients() == []

    sampling(fake, main)


def test_a_killed_worker_is_replaced_before_anything_is_unknown(fake: FakeNvml) -> None:
    """kill -9 costs one restart; the readings stay until the next read-all renews them."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        pid = rig.shown.pid
        assert pid is not None
        os.kill(pid, 9)
        await until(lambda: rig.worker.status.restarts == 1)
        assert rig.failing() == {}
        await until(lambda: rig.shown.state == "idle" and rig.shown.pid not in (None, pid))

    sampling(fake, main, poll_seconds=60)
