"""The scripted NVML library answers the real pynvml as a driver would.

Everything that is tested against it rests on this; no test here may load the
library into the test process.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.control import FakeNvml, InUseError
from tests.fakenvml.probe import Probes

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")

GPU_0 = "n.nvmlDeviceGetHandleByIndex(0)"
RESET = Path(__file__).parent / "fakenvml" / "reset"


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


# profile, GPUs, driver, then expressions about GPU 0 and what they give (an int in a tuple: a code)
FACTS: list[tuple[str, int, str, dict[str, Any]]] = [
    (
        "A100",
        8,
        "550.90.07",
        {
            "n.nvmlDeviceGetName(h)": "NVIDIA A100-SXM4-80GB",
            "n.nvmlDeviceGetPciInfo(h).busId": "00000000:07:00.0",
            "n.nvmlDeviceGetPciInfo(h).pciDeviceId": 0x20B210DE,
            "n.nvmlDeviceGetUUID(h)": "GPU-a1000000-0000-4000-8000-000000000000",
            "n.nvmlDeviceGetMemoryInfo(h).total": 80 << 30,
            "n.nvmlDeviceGetMigMode(h)": [0, 0],
            "n.nvmlDeviceGetNvLinkState(h, 11)": 1,
            "n.nvmlDeviceGetNvLinkState(h, 12)": (2,),
            "n.nvmlDeviceGetEccMode(h)": [1, 1],
            "n.nvmlDeviceGetRemappedRows(h)": [0, 0, 0, 0],
            "n.nvmlDeviceGetMarginTemperature(h)": (3,),
            "[v.nvmlReturn for v in n.nvmlDeviceGetFieldValues(h, [230, 269, 193])]": [3, 3, 3],
        },
    ),
    (
        "H100",
        8,
        "580.95.05",
        {
            "n.nvmlDeviceGetName(h)": "NVIDIA H100 80GB HBM3",
            "n.nvmlDeviceGetPciInfo(h).pciDeviceId": 0x233010DE,
            "n.nvmlDeviceGetPciInfo(h).busIdLegacy": "0000:1B:00.0",
            "n.nvmlDeviceGetSerial(h)": "1650024000000",
            "n.nvmlDeviceGetBoardPartNumber(h)": "692-2G520-0200-000",
            "n.nvmlDeviceGetNvLinkState(h, 17)": 1,
            "n.nvmlDeviceGetMarginTemperature(h)": 51,
            "n.nvmlDeviceGetMinorNumber(n.nvmlDeviceGetHandleByIndex(7))": 7,
            "n.nvmlDeviceGetPersistenceMode(h)": 1,
            "n.nvmlDeviceGetComputeRunningProcesses(h)": [],
            "n.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, n.NVML_MEMORY_LOCATION_SRAM)": 0,
            "n.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, n.NVML_MEMORY_LOCATION_L1_CACHE)": (3,),
            "n.nvmlDeviceGetRetiredPagesPendingStatus(h)": (3,),
            "n.nvmlDeviceGetCurrPcieLinkWidth(h)": 16,
            "n.nvmlDeviceGetGspFirmwareVersion(h).decode()": "580.95.05",
            "n.nvmlDeviceGetVbiosVersion(h)": "96.00.99.00.01",
            "[v.nvmlReturn for v in n.nvmlDeviceGetFieldValues(h, [230, 269, 270, 271])]": [0] * 4,
            "[v.value.siVal for v in n.nvmlDeviceGetFieldValues(h, [193, 194, 195, 196])]": [-8, -2, 0, 0],
        },
    ),
    (
        "B200",
        8,
        "580.95.05",
        {
            "n.nvmlDeviceGetName(h)": "NVIDIA B200",
            "n.nvmlDeviceGetPciInfo(h).pciDeviceId": 0x290110DE,
            "n.nvmlDeviceGetNvLinkState(h, 17)": 1,
            "n.nvmlDeviceGetNvLinkVersion(h, 0)": 7,
            "n.nvmlDeviceGetRepairStatus(h)": [0, 0],
            "n.nvmlDeviceGetFieldValues(h, [(222, 17)])[0].nvmlReturn": 0,
            "n.nvmlDeviceGetFieldValues(h, [(222, 18)])[0].nvmlReturn": 2,
        },
    ),
    (
        "L4",
        3,
        "580.95.05",
        {
            "n.nvmlDeviceGetName(h)": "NVIDIA L4",
            "n.nvmlDeviceGetPciInfo(h).pciDeviceId": 0x27B810DE,
            "n.nvmlDeviceGetMigMode(h)": (3,),
            "n.nvmlDeviceGetNvLinkState(h, 0)": (3,),
            "n.nvmlDeviceGetEccMode(h)": [1, 1],
            "n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(n.c_nvmlGpuFabricInfo_v3_t()))": (3,),
            "n.nvmlDeviceGetFieldValues(h, [82])[0].nvmlReturn": 3,
        },
    ),
]


@pytest.mark.parametrize(("profile", "gpus", "driver", "facts"), FACTS, ids=[row[0] for row in FACTS])
def test_each_profile_tells_its_facts(
    fake: FakeNvml, probe: Probes, profile: str, gpus: int, driver: str, facts: dict[str, Any]
) -> None:
    """What a kind of GPU has is read, and what it lacks answers NOT_SUPPORTED."""
    fake.start(profile, gpus)
    child = probe()
    assert child.do("n.nvmlDeviceGetCount()") == gpus
    assert child.do("n.nvmlSystemGetDriverVersion()") == driver
    for expression, expected in facts.items():
        if isinstance(expected, tuple):
            assert child.code(expression) == expected[0], expression
        else:
            assert child.do(expression) == expected, expression


def test_a_gpu_is_found_by_every_name(probe: Probes) -> None:
    """UUID, serial and PCI address lead to the handle that the index gives."""
    child = probe()
    seventh = child.do("n.nvmlDeviceGetHandleByIndex(6)")
    child.do("g = n.nvmlDeviceGetHandleByIndex(6)")
    assert child.do("n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(g).encode())") == seventh
    assert child.do("n.nvmlDeviceGetHandleBySerial(n.nvmlDeviceGetSerial(g).encode())") == seventh
    assert child.do("n.nvmlDeviceGetHandleByPciBusId(b'0000:d1:00.0')") == seventh
    assert child.code("n.nvmlDeviceGetHandleByUUID(b'GPU-none')") == 6
    assert child.code("n.nvmlDeviceGetHandleByIndex(8)") == 2


# the scenario's line, the call on GPU 0, its code; the next GPU is untouched
RULES = [
    ("nvmlDeviceGetUUID", "return 999", None, "n.nvmlDeviceGetUUID({})", (999, 999)),
    ("nvmlDeviceGetUUID", "return GPU_IS_LOST", 0, "n.nvmlDeviceGetUUID({})", (15, 0)),
    ("nvmlDeviceGet*", "return NO_PERMISSION", 0, "n.nvmlDeviceGetEccMode({})", (4, 0)),
    ("nvmlDeviceGetHandleByIndex_v2", "return 27", 1, "n.nvmlDeviceGetHandleByIndex({}i)", (0, 27)),
    ("nvmlDeviceGetName", "delay 50", 0, "n.nvmlDeviceGetName({})", (0, 0)),
]


@pytest.mark.parametrize(("function", "action", "gpu", "call", "codes"), RULES)
def test_a_rule_decides_what_a_call_returns(
    fake: FakeNvml,
    probe: Probes,
    function: str,
    action: str,
    gpu: int | None,
    call: str,
    codes: tuple[int, int],
) -> None:
    """A rule holds for the calls and the GPU it names, and ends when it is removed."""
    child = probe()
    child.do("g = n.nvmlDeviceGetHandleByIndex(1); hi = 0; gi = 1")
    fake.add_rule(function, action, gpu=gpu)
    assert (child.code(call.format("h")), child.code(call.format("g"))) == codes
    fake.clear_rules()
    assert (child.code(call.format("h")), child.code(call.format("g"))) == (0, 0)


def test_a_rule_counts_calls(fake: FakeNvml, probe: Probes) -> None:
    """A rule can begin with the third call and end after two."""
    child = probe()
    fake.add_rule("nvmlDeviceGetName", "return 999", from_call=3, times=2)
    assert [child.code("n.nvmlDeviceGetName(h)") for _ in range(6)] == [0, 0, 999, 999, 0, 0]


def test_a_rule_counts_over_all_processes(fake: FakeNvml, probe: Probes) -> None:
    """A node-wide rule goes on counting in the next process."""
    first, second = probe(), probe()
    fake.add_rule("nvmlDeviceGetName", "return 999", from_call=2, times=1, node_wide=True)
    assert first.code("n.nvmlDeviceGetName(h)") == 0
    assert second.code("n.nvmlDeviceGetName(h)") == 999
    assert first.code("n.nvmlDeviceGetName(h)") == 0


def test_a_blocked_call_returns_when_the_rule_goes(fake: FakeNvml, probe: Probes) -> None:
    """A call hangs as long as a rule says so, and then answers as ever."""
    child = probe()
    rule = fake.add_rule("nvmlDeviceGetName", "block")
    call = child.start("n.nvmlDeviceGetName(h)")
    assert not call.done(0.2)
    fake.set_gpu(0, "name", "Renamed GPU")
    assert not call.done(0.1)
    fake.remove(rule)
    assert call.result() == "Renamed GPU"


def test_events_pass_while_every_other_call_hangs(fake: FakeNvml, probe: Probes) -> None:
    """One call can be spared from a rule for all calls."""
    child = probe()
    child.do("s = n.nvmlEventSetCreate(); n.nvmlDeviceRegisterEvents(h, 8, s)")
    fake.add_rule("*", "block", excluded=["nvmlEventSetWait_v2"])
    hung = child.start("n.nvmlDeviceGetUUID(h)")
    waiting = child.start("n.nvmlEventSetWait(s, 20000)")
    fake.add_event(0, "xid", 79)
    assert waiting.result()["eventData"] == 79
    assert not hung.done(0.1)
    fake.clear_rules()
    assert hung.result().startswith("GPU-")


@pytest.mark.parametrize(
    ("how", "status"),
    [("abort", -signal.SIGABRT), ("segv", -signal.SIGSEGV), ("sigkill", -signal.SIGKILL), ("exit", 1)],
)
def test_a_call_can_kill_its_process(fake: FakeNvml, probe: Probes, how: str, status: int) -> None:
    """The child dies of the signal that the rule names, in that call."""
    child = probe()
    fake.add_rule("nvmlDeviceGetName", f"kill {how}")
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0
    child.start("n.nvmlDeviceGetName(h)")
    assert child.wait_for_death() == status


# the state, the codes of a held handle and of asking by index, the count after a new init
STATES = [
    ("lost", 15, 15, 8),
    ("fallen_off_bus", 15, 15, 7),
    ("absent", 15, 15, 7),
    ("reset_required", 16, 0, 8),
]


@pytest.mark.parametrize(("state", "held", "by_index", "count"), STATES)
def test_a_broken_gpu_stays_broken(
    fake: FakeNvml, probe: Probes, state: str, held: int, by_index: int, count: int
) -> None:
    """A fault survives shutdown and init, and leaves the other GPUs alone."""
    child = probe()
    child.do("g = n.nvmlDeviceGetHandleByIndex(1)")
    fake.set_gpu(0, "state", state)
    assert child.code("n.nvmlDeviceGetTemperature(h, 0)") == held
    assert child.code("n.nvmlDeviceGetTemperature(g, 0)") == 0
    assert child.code(GPU_0) == by_index
    assert child.do("n.nvmlDeviceGetCount()") == 8
    child.do("n.nvmlShutdown(); n.nvmlInit()")
    assert child.do("n.nvmlDeviceGetCount()") == count
    assert child.code("n.nvmlDeviceGetTemperature(h, 0)") == held


def test_ecc_counters_rise(fake: FakeNvml, probe: Probes) -> None:
    """A rising counter rises by itself, volatile and aggregate alike, in the field values, too."""
    child = probe()
    fake.raise_ecc(0, per_second=17_000)
    read = "n.nvmlDeviceGetTotalEccErrors(h, 0, {})"
    first = child.do(read.format(0))
    child.do("import time; time.sleep(0.1)")
    assert child.do(read.format(0)) - first >= 1_700
    assert child.do(read.format(1)) >= 1_700
    assert child.do("n.nvmlDeviceGetFieldValues(h, [11])[0].value.ullVal") >= 1_700
    assert child.do("n.nvmlDeviceGetTotalEccErrors(h, 1, 0)") == 0


def test_ecc_off_has_no_counters(fake: FakeNvml, probe: Probes) -> None:
    """With ECC off its counters answer NOT_SUPPORTED."""
    fake.set_gpu(0, "ecc.mode", "off")
    child = probe()
    assert child.do("n.nvmlDeviceGetEccMode(h)") == [0, 1]
    assert child.code("n.nvmlDeviceGetTotalEccErrors(h, 0, 0)") == 3
    assert child.code("n.nvmlDeviceGetMemoryErrorCounter(h, 0, 0, 2)") == 3


def test_a_field_can_fail_alone(fake: FakeNvml, probe: Probes) -> None:
    """One field value has its own return code while its neighbours are read."""
    child = probe()
    fake.set_gpu(0, "recovery_action", 2)
    fake.set_field(0, 196, code=999)
    values = child.do("n.nvmlDeviceGetFieldValues(h, [230, 196, 193])")
    assert [value["nvmlReturn"] for value in values] == [0, 999, 0]
    assert values[0]["value"]["uiVal"] == 2
    fake.set_field(0, 230, value=7)
    assert child.do("n.nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal") == 7
    with fake.edit() as lines:
        lines.append("unknown_field_code INVALID_ARGUMENT")
    assert child.do("n.nvmlDeviceGetFieldValues(h, [999])[0].nvmlReturn") == 2


def test_processes_and_memory_belong_together(fake: FakeNvml, probe: Probes) -> None:
    """Processes are listed with their memory, and it counts as used."""
    child = probe()
    fake.set_processes(0, {4242: 3 << 30, 4343: 1 << 30})
    listed = child.do("n.nvmlDeviceGetComputeRunningProcesses(h)")
    assert [(one["pid"], one["usedGpuMemory"]) for one in listed] == [(4242, 3 << 30), (4343, 1 << 30)]
    memory = child.do("n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)")
    assert memory["used"] == 4 << 30
    assert memory["free"] == memory["total"] - memory["reserved"] - memory["used"]


def test_a_loaded_library_is_refused_by_another_driver(fake: FakeNvml, probe: Probes) -> None:
    """After a driver upgrade old handles are dead and only a new process gets in."""
    old = probe()
    fake.set_driver("590.44.01")
    assert old.code("n.nvmlDeviceGetUUID(h)") == 999
    assert old.code("n.nvmlShutdown()") == 0
    assert old.code("n.nvmlInit()") == 18
    new = probe()
    assert new.do("n.nvmlSystemGetDriverVersion()") == "590.44.01"
    assert new.code("n.nvmlDeviceGetUUID(h)") == 0


def test_an_upgrade_in_place_refuses_only_new_processes(fake: FakeNvml, probe: Probes) -> None:
    """A new library over the old kernel driver leaves running processes at work."""
    old = probe()
    fake.set_driver("580.95.05", library="590.44.01")
    assert old.code("n.nvmlDeviceGetUUID(h)") == 0
    assert probe(initialise=False).code("n.nvmlInit()") == 18


def test_no_driver_no_init(fake: FakeNvml, probe: Probes) -> None:
    """An unloaded driver, and a node without GPUs, are told apart at init."""
    fake.set_driver("none")
    assert probe(initialise=False).code("n.nvmlInit()") == 9
    fake.start("H100", gpus=0)
    child = probe(initialise=False)
    assert child.code("n.nvmlInit()") == 28
    assert child.code("n.nvmlInitWithFlags(n.NVML_INIT_FLAG_NO_GPUS)") == 0
    assert child.do("n.nvmlDeviceGetCount()") == 0


def test_nothing_answers_before_init(probe: Probes) -> None:
    """A call before init and a second shutdown are refused as uninitialised."""
    child = probe(initialise=False)
    child.code("n.nvmlInit()")
    child.do(f"h = {GPU_0}; n.nvmlShutdown()")
    assert child.code("n.nvmlDeviceGetUUID(h)") == 1
    assert child.code("n.nvmlShutdown()") == 1


def test_a_missing_function_is_not_found(fake: FakeNvml, probe: Probes) -> None:
    """A function that the scenario calls missing is not in the library at all."""
    fake.start("A100", missing=["nvmlDeviceGetRepairStatus", "nvmlDeviceGetGpuFabricInfoV"])
    child = probe()
    assert child.code("n.nvmlDeviceGetRepairStatus(h)") == 13
    assert child.code("n.nvmlDeviceGetGpuFabricInfoV(h, None)") == 13
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0
    assert child.stderr == ""


def test_a_reset_waits_for_every_client(fake: FakeNvml, probe: Probes) -> None:
    """A reset is refused with the pids while NVML is held, and done once it is let go."""
    child = probe()
    for key, value in {"recovery_action": 1, "remap.pending": 1, "state": "reset_required"}.items():
        fake.set_gpu(0, key, value)
    fake.set_gpu(0, "ecc.uncorrected.volatile.dram", 4)
    fake.set_gpu(0, "ecc.uncorrected.aggregate.dram", 9)
    refused = _reset(fake, 0)
    assert refused.returncode == 19
    assert f"in use by another client: pid {child.process.pid}" in refused.stderr
    child.do("n.nvmlShutdown()")
    assert _reset(fake, 0).returncode == 0
    child.do("n.nvmlInit()")
    assert child.do("n.nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal") == 0
    assert child.do("n.nvmlDeviceGetRemappedRows(h)[2]") == 0
    assert child.do("n.nvmlDeviceGetTotalEccErrors(h, 1, 0)") == 0
    assert child.do("n.nvmlDeviceGetTotalEccErrors(h, 1, 1)") == 9


def test_a_dead_client_holds_nothing(fake: FakeNvml, probe: Probes) -> None:
    """A killed process is no client any more; a hung init is one."""
    child = probe()
    assert fake.clients() == [child.process.pid]
    child.kill()
    assert fake.clients() == []
    fake.add_rule("nvmlInitWithFlags", "block")
    hung = probe(initialise=False)
    hung.start("n.nvmlInit()")
    while not fake.calls("nvmlInitWithFlags") > 1:
        assert hung.process.poll() is None
    with pytest.raises(InUseError, match=str(hung.process.pid)):
        fake.reset(0)


def test_calls_are_counted_for_the_test(fake: FakeNvml, probe: Probes) -> None:
    """A test can ask how often the driver was called by anyone."""
    assert fake.calls("nvmlDeviceGetName") == 0
    for _ in range(2):
        probe().do("n.nvmlDeviceGetName(h)")
    assert fake.calls("nvmlDeviceGetName") == 2


def _reset(fake: FakeNvml, gpu: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RESET), "--scenario", str(fake.path), str(gpu)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
