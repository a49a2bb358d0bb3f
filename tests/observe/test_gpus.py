"""The GPU sampler with the real pynvml: every signal by itself, and what a GPU's failure costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import (
    FabricState,
    MonotonicCount,
    OwnerlessMemory,
    PcieLink,
    PersistenceMode,
    RetiredPages,
    SlowedTime,
    SramErrors,
    TemperatureMargin,
)
from nodeagent.observe.gpus import SIGNALS
from nodeagent.signals import (
    EccCounters,
    GpuDriver,
    GpuPresence,
    GpuProcesses,
    RecoveryAction,
    RowRemap,
    SignalKey,
    Unread,
)
from tests.drivers.rig import until
from tests.fakenvml.control import FakeNvml
from tests.observe.gpu_rig import ADDRESSES, GpuRig, needs_gcc, sampling

pytestmark = needs_gcc

# a key of the scenario, its value, and the signal that shows it
KEYS: list[tuple[str, object, str, object]] = [
    ("recovery_action", 4, "gpu.recovery_action", RecoveryAction(value=4)),
    ("ecc.uncorrected.volatile.sram", 3, "gpu.ecc", EccCounters(
        volatile_uncorrected=3, volatile_corrected=0, aggregate_uncorrected=0, aggregate_corrected=0)),
    ("ecc.corrected.aggregate.dram", 2**63, "gpu.ecc", EccCounters(
        volatile_uncorrected=0, volatile_corrected=0, aggregate_uncorrected=0, aggregate_corrected=2**63)),
    ("remap.pending", 1, "gpu.row_remap", RowRemap(
        corrected_rows=0, uncorrected_rows=0, pending=True, failed=False)),
    ("remap.uncorrected", 2, "gpu.row_remap", RowRemap(
        corrected_rows=0, uncorrected_rows=2, pending=False, failed=False)),
    ("remap.failure", 1, "gpu.row_remap", RowRemap(
        corrected_rows=0, uncorrected_rows=0, pending=False, failed=True)),
    ("sram.threshold_exceeded", 1, "gpu.sram", SramErrors(threshold_exceeded=True, aggregate_uncorrected=0)),
    ("ecc.uncorrected.aggregate.sram", 7, "gpu.sram", SramErrors(
        threshold_exceeded=False, aggregate_uncorrected=7)),
    ("temperature.margin", -3, "gpu.temperature_margin", TemperatureMargin(margin_celsius=-3)),
    ("throttle.hw_thermal_ns", 7, "gpu.thermal_slowdown", SlowedTime(total_nanoseconds=7)),
    ("throttle.power_brake_ns", 8, "gpu.power_brake", SlowedTime(total_nanoseconds=8)),
    ("pcie.width", 8, "gpu.pcie_link", PcieLink(
        lane_count=8, max_lane_count=16, generation=5, max_generation=5)),
    ("pcie.gen", 1, "gpu.pcie_link", PcieLink(
        lane_count=16, max_lane_count=16, generation=1, max_generation=5, busy_percent=0)),
    ("pcie.replay", 9, "gpu.pcie_replay", MonotonicCount(total_count=9)),
    ("memory.used", 1 << 30, "gpu.ownerless_memory", OwnerlessMemory(used_bytes=1 << 30)),
    ("addressing_mode", 2, "gpu.ownerless_memory", OwnerlessMemory(used_bytes=0, of_system=True)),
    ("fabric.state", 1, "gpu.fabric", FabricState(
        state=1, status=0, health_mask=0x1AA, health_summary=1)),
    ("fabric.health_mask", 0x1A9, "gpu.fabric", FabricState(
        state=3, status=0, health_mask=0x1A9, health_summary=1)),
    ("persistence", "off", "gpu.persistence", PersistenceMode(enabled=False)),
]


@pytest.mark.parametrize(("key", "value", "signal", "noun"), KEYS, ids=[f"{r[0]}={r[1]}" for r in KEYS])
def test_a_signal_shows_what_the_gpu_says(
    fake: FakeNvml, key: str, value: object, signal: str, noun: object
) -> None:
    """The value arrives under the GPU's own address, and no other GPU has it."""
    fake.set_gpu(2, key, value)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert rig.value(signal, 2) == noun
        assert rig.value(signal, 1) != noun

    sampling(fake, main)


def test_pages_are_counted_on_a_gpu_that_retires_them(fake: FakeNvml) -> None:
    """Both causes and the pending mark come with one call; a GPU without them is asked only once."""
    fake.set_gpu(0, "has.retired_pages", "yes")
    fake.set_gpu(0, "retired.sbe", 4)
    fake.set_gpu(0, "retired.dbe", 2)
    fake.set_gpu(0, "retired.pending", 1)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert rig.value("gpu.retired_pages", 0) == RetiredPages(
            single_bit_pages=4, double_bit_pages=2, pending=True
        )
        lacking = rig.value("gpu.retired_pages", 1)
        assert isinstance(lacking, Unread) and lacking.kind is ErrorKind.ABSENT

    sampling(fake, main)


def test_a_healthy_node_has_every_signal_of_every_gpu(fake: FakeNvml) -> None:
    """Driver, devices and every signal of each of eight GPUs, all good but what an H100 lacks."""
    fake.set_processes(5, {4242: 1 << 30, 4243: 1 << 20})

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert len(rig.values()) == 2 + (len(SIGNALS) - 2) * 8
        assert rig.failing() == {}
        assert rig.value("gpu.driver") == GpuDriver(driver_version="580.95.05", nvml_version="13.580.95.05")
        devices = rig.value("gpu.devices")
        assert [gpu.pci_address for gpu in devices] == ADDRESSES
        assert [(gpu.index, gpu.minor) for gpu in devices] == [(n, n) for n in range(8)]
        assert all(gpu.uuid and gpu.name and gpu.pci_device_id and not gpu.mig_enabled for gpu in devices)
        assert [rig.value("gpu.processes", n).count for n in range(8)] == [0] * 5 + [2, 0, 0]
        assert all(rig.value("gpu.presence", n) == GpuPresence(reachable=True) for n in range(8))

    sampling(fake, main)


# what a call answers on GPU 3, the signal that is lost by it, and its kind
FAILURES: list[tuple[str, str, str, ErrorKind]] = [
    ("nvmlDeviceGetTotalEccErrors", "return NOT_SUPPORTED", "gpu.ecc", ErrorKind.ABSENT),
    ("nvmlDeviceGetTotalEccErrors", "return UNKNOWN", "gpu.ecc", ErrorKind.INVALID),
    ("nvmlDeviceGetTotalEccErrors", "return 4242", "gpu.ecc", ErrorKind.INVALID),
    ("nvmlDeviceGetRemappedRows", "return NO_PERMISSION", "gpu.row_remap", ErrorKind.DENIED),
    ("nvmlDeviceGetRemappedRows", "return IN_USE", "gpu.row_remap", ErrorKind.BUSY),
    ("nvmlDeviceGetRemappedRows", "return TIMEOUT", "gpu.row_remap", ErrorKind.TIMEOUT),
    ("nvmlDeviceGetSramEccErrorStatus", "return NOT_READY", "gpu.sram", ErrorKind.BUSY),
    ("nvmlDeviceGetMarginTemperature", "return UNKNOWN", "gpu.temperature_margin", ErrorKind.INVALID),
    ("nvmlDeviceGetPersistenceMode", "return NOT_SUPPORTED", "gpu.persistence", ErrorKind.ABSENT),
    ("nvmlDeviceGetComputeRunningProcesses_v3", "return MEMORY", "gpu.processes", ErrorKind.BUSY),
    ("nvmlDeviceGetCurrPcieLinkWidth", "return UNKNOWN", "gpu.pcie_link", ErrorKind.INVALID),
    ("nvmlDeviceGetMemoryInfo_v2", "return UNKNOWN", "gpu.ownerless_memory", ErrorKind.INVALID),
    ("nvmlDeviceGetGpuFabricInfoV", "return NOT_SUPPORTED", "gpu.fabric", ErrorKind.ABSENT),
    ("nvmlDeviceGetGpuFabricInfoV", "return UNKNOWN", "gpu.fabric", ErrorKind.INVALID),
]
MADE_OF = {"gpu.processes": ("gpu.ownerless_memory",)}
"""Signal -> those that cannot be read without it."""


@pytest.mark.parametrize(("function", "action", "signal", "kind"), FAILURES)
def test_one_failing_call_costs_one_signal_of_one_gpu(
    fake: FakeNvml, function: str, action: str, signal: str, kind: ErrorKind
) -> None:
    """That signal is unread with its reason, every other signal of every GPU is good."""
    fake.add_rule(function, action, gpu=3)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        unread = rig.failing()
        assert list(unread) == [SignalKey(name, ADDRESSES[3]) for name in (signal, *MADE_OF.get(signal, ()))]
        assert {value.kind for value in unread.values()} == {kind}
        assert all("NVML returned" in value.reason for value in unread.values())
        assert rig.value("gpu.presence", 3) == GpuPresence(reachable=True)

    sampling(fake, main)


@pytest.mark.parametrize(("code", "kind"), [("INVALID_ARGUMENT", "invalid"), ("NOT_READY", "busy")])
def test_failing_field_values_cost_the_signals_made_of_them(fake: FakeNvml, code: str, kind: str) -> None:
    """Those of that GPU are unread, and no others."""
    fake.add_rule("nvmlDeviceGetFieldValues", f"return {code}", gpu=3)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        unread = rig.failing()
        assert {key.signal for key in unread} == {
            "gpu.recovery_action", "gpu.retired_pages", "gpu.thermal_slowdown", "gpu.power_brake",
            "gpu.pcie_replay", "gpu.nvlink", "gpu.nvlink_errors",
        }
        assert {key.target for key in unread} == {ADDRESSES[3]}
        assert {value.kind.value for value in unread.values()} == {kind}

    sampling(fake, main)


@pytest.mark.parametrize("code", [2, 3])
def test_a_field_this_driver_does_not_know_is_absent(fake: FakeNvml, code: int) -> None:
    """The call succeeds, the field's own return code tells: no such feature."""
    fake.set_field("*", 230, code=code)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert {rig.value("gpu.recovery_action", n).kind for n in range(8)} == {ErrorKind.ABSENT}

    sampling(fake, main)


def test_a_function_that_is_missing_is_asked_for_once(fake: FakeNvml) -> None:
    """FUNCTION_NOT_FOUND holds for the library, so no GPU and no later read calls it again."""
    fake.add_rule("nvmlDeviceGetRemappedRows", "return FUNCTION_NOT_FOUND")

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        assert {rig.value("gpu.row_remap", n).kind for n in range(8)} == {ErrorKind.ABSENT}
        assert fake.calls("nvmlDeviceGetRemappedRows") == 1

    sampling(fake, main)


def test_an_old_library_without_the_symbols_is_read(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver never had is absent; processes are counted by the older version of the call."""
    names = ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"]
    fake.start("A100", driver="470.57.02", missing=names)
    fake.set_processes(0, {4242: 1 << 20})
    monkeypatch.setenv("LD_LIBRARY_PATH", fake.environment({})["LD_LIBRARY_PATH"])

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        devices = rig.value("gpu.devices")
        assert len(devices) == 8
        address = devices[0].pci_address
        assert rig.value("gpu.row_remap", address).kind is ErrorKind.ABSENT
        assert rig.value("gpu.processes", address) == GpuProcesses(count=1)
        assert rig.value("gpu.recovery_action", address).kind is ErrorKind.ABSENT
        assert rig.value("gpu.presence", address) == GpuPresence(reachable=True)

    sampling(fake, main)


def test_mig_mode_is_part_of_the_identity(fake: FakeNvml) -> None:
    """A GPU in MIG mode says so, and what NVML does not support then is absent."""
    fake.set_gpu(6, "mig.mode", 1)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert [gpu.mig_enabled for gpu in rig.value("gpu.devices")] == [False] * 6 + [True, False]
        assert rig.value("gpu.row_remap", 6).kind is ErrorKind.ABSENT
        assert rig.value("gpu.ecc", 6) == rig.value("gpu.ecc", 0)

    sampling(fake, main)


def test_a_lost_gpu_is_named_and_left_alone(fake: FakeNvml) -> None:
    """It is unreachable, its signals are unread, no further call is made on it, the others are good."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.set_gpu(3, "state", "lost")
        await rig.good_read()
        presence = rig.value("gpu.presence", 3)
        assert (presence.reachable, "NVML returned 15" in presence.detail) == (False, True)
        assert rig.value("gpu.ecc", 3).kind is ErrorKind.LOST
        assert len(rig.value("gpu.devices")) == 8
        assert rig.value("gpu.devices")[3].uuid
        assert all(rig.value("gpu.presence", n).reachable for n in range(8) if n != 3)
        before = fake.calls("nvmlDeviceGetTotalEccErrors")
        await rig.good_read()
        assert fake.calls("nvmlDeviceGetTotalEccErrors") - before == 7 * 4

    sampling(fake, main, poll_seconds=3600)


def test_a_lost_gpu_keeps_its_name_over_a_new_worker(fake: FakeNvml) -> None:
    """The sampler tells a fresh child which address the silent index had."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.set_gpu(3, "state", "lost")
        pid = rig.shown.pid
        assert pid is not None
        os.kill(pid, 9)
        await until(lambda: rig.worker.status.restarts == 1)
        await until(lambda: rig.value("gpu.presence", 3) != GpuPresence(reachable=True))
        assert rig.value("gpu.presence", 3).reachable is False
        assert rig.shown.pid != pid

    sampling(fake, main)


def test_a_removed_gpu_leaves_the_board(fake: FakeNvml) -> None:
    """A GPU that the next enumeration does not show has no signals any more."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.set_gpu(7, "state", "absent")
        await rig.worker.replace("test")
        await until(lambda: len(rig.value("gpu.devices")) == 7)
        await until(lambda: not [key for key in rig.values() if key.target == ADDRESSES[7]])

    sampling(fake, main)


def test_a_gpu_that_requires_a_reset_asks_for_it(fake: FakeNvml) -> None:
    """NVML's code 16 is the driver's word for a reset, also where it has no recovery action to say so."""
    fake.set_gpu(1, "state", "reset_required")
    fake.add_rule("nvmlDeviceGetFieldValues", "return RESET_REQUIRED", gpu=1)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert rig.value("gpu.recovery_action", 1) == RecoveryAction(value=1)
        presence = rig.value("gpu.presence", 1)
        assert (presence.reachable, "requires a reset" in presence.detail) == (True, True)

    sampling(fake, main)


# profile, GPUs, signals of its first GPU that the device does not have
PROFILES: list[tuple[str, int, set[str]]] = [
    ("A100", 8, {"gpu.retired_pages", "gpu.temperature_margin", "gpu.fabric"}),
    ("H100", 8, {"gpu.retired_pages"}), ("B200", 8, {"gpu.retired_pages"}),
    ("L4", 4, {"gpu.retired_pages", "gpu.nvlink", "gpu.nvlink_errors", "gpu.fabric"}),
]


@pytest.mark.parametrize(("profile", "count", "absent"), PROFILES)
def test_every_profile_is_read(fake: FakeNvml, profile: str, count: int, absent: set[str]) -> None:
    """Each product is enumerated, and only what it lacks is absent."""
    fake.start(profile, count, driver="580.95.05")

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        devices = rig.value("gpu.devices")
        assert len(devices) == count
        unread: dict[str, Any] = {
            key.signal: value for key, value in rig.values().items() if isinstance(value, Unread)
        }
        assert set(unread) == absent

    sampling(fake, main)


def test_the_worker_stays_small(fake: FakeNvml) -> None:
    """Eight GPUs and their event threads fit in 20 MiB of memory (PSS)."""

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        lines = Path(f"/proc/{rig.shown.pid}/smaps_rollup").read_text().splitlines()
        pss_kib = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        assert pss_kib < 20 * 1024

    sampling(fake, main)
