"""What a scenario says of a GPU is what the real pynvml reads, and a bad scenario harms nobody."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakenvml.control import ABSENT_IN_550, FakeNvml, build_library
from tests.fakenvml.probe import Probes

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt-get install gcc")

VOLATILE_SRAM = "n.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, n.NVML_MEMORY_LOCATION_SRAM)"


def filled(struct: str, call: str) -> str:
    """Return statements that fill a struct `r` by a call that takes a reference to it."""
    return f"r = n.{struct}(); n.{call}(h, n.byref(r))"


SRAM = filled("c_nvmlEccSramErrorStatus_v1_t", "nvmlDeviceGetSramEccErrorStatus")
ROWS_V2 = filled("c_nvmlRemappedRowsInfo_v2_t", "nvmlDeviceGetRemappedRows_v2")
FABRIC_V2 = filled("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV")
FABRIC_V3 = filled("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV")
NVLINK_INFO = filled("c_nvmlNvLinkInfo_v2_t", "nvmlDeviceGetNvLinkInfo")


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """A healthy idle node of eight B200."""
    fake = FakeNvml(tmp_path / "scenario")
    fake.start("B200")
    return fake


@pytest.fixture
def probe(fake: FakeNvml) -> Iterator[Probes]:
    """Start children with pynvml, and end them all."""
    with Probes(fake.environment) as probes:
        yield probes


# line of the scenario after "gpu 0", statements before the expression, expression, value
KEYS: list[tuple[str, str, str, Any]] = [
    ("uuid GPU-abc", "", "n.nvmlDeviceGetUUID(h)", "GPU-abc"),
    ("name NVIDIA GB300 of tests", "", "n.nvmlDeviceGetName(h)", "NVIDIA GB300 of tests"),
    ("serial 77", "", "n.nvmlDeviceGetSerial(h)", "77"),
    ("minor 5", "", "n.nvmlDeviceGetMinorNumber(h)", 5),
    ("bus_id 00010000:AF:01.0", "", "n.nvmlDeviceGetPciInfo(h).domain", 0x10000),
    ("bus_id 0000:AF:01.0", "", "n.nvmlDeviceGetPciInfo(h).busId", "00000000:AF:01.0"),
    ("persistence off", "", "n.nvmlDeviceGetPersistenceMode(h)", 0),
    ("gsp.version 575.1", "", "n.nvmlDeviceGetGspFirmwareVersion(h).decode()", "575.1"),
    ("gsp.mode off", "", "n.nvmlDeviceGetGspFirmwareMode(h)", [0, 1]),
    ("vbios 1.2.3", "", "n.nvmlDeviceGetVbiosVersion(h)", "1.2.3"),
    ("ecc.uncorrected.volatile.sram 3", "", VOLATILE_SRAM, 3),
    ("ecc.uncorrected.volatile.sram 3", "", "n.nvmlDeviceGetTotalEccErrors(h, 1, 0)", 3),
    ("ecc.uncorrected.aggregate.sram 5", SRAM, "r.aggregateUncSecDed", 5),
    ("sram.threshold_exceeded yes", SRAM, "r.bThresholdExceeded", 1),
    ("sram.other 9", SRAM, "r.aggregateUncBucketOther", 9),
    ("remap.uncorrected 2", "", "n.nvmlDeviceGetRemappedRows(h)", [0, 2, 0, 0]),
    ("remap.pending yes", "", "n.nvmlDeviceGetRemappedRows(h)", [0, 0, 1, 0]),
    ("remap.failure yes", "", "n.nvmlDeviceGetRemappedRows(h)", [0, 0, 0, 1]),
    ("remap.corrected 4", "", "n.nvmlDeviceGetFieldValues(h, [142])[0].value.uiVal", 4),
    ("remap.uncorrected_inactive 6", ROWS_V2, "r.uncInactiveRemaps", 6),
    ("remap.histogram.none 7", "", "n.nvmlDeviceGetRowRemapperHistogram(h).none", 7),
    ("repair.tpc yes", "", "n.nvmlDeviceGetRepairStatus(h)", [0, 1]),
    ("unrepairable_memory yes", "", "n.nvmlDeviceGetUnrepairableMemoryFlag_v1(h)", 1),
    ("recovery_action 4", "", "n.nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal", 4),
    ("temperature 91", "", "n.nvmlDeviceGetTemperature(h, 0)", 91),
    ("temperature 91", "", "n.nvmlDeviceGetTemperatureV(h, 0)", 91),
    ("temperature.margin -3", "", "n.nvmlDeviceGetMarginTemperature(h)", -3),
    ("temperature.memory 105", "", "n.nvmlDeviceGetFieldValues(h, [82])[0].value.uiVal", 105),
    ("tlimit.slowdown -2", "", "n.nvmlDeviceGetFieldValues(h, [194])[0].value.siVal", -2),
    ("clocks.reasons 0x48", "", "n.nvmlDeviceGetCurrentClocksEventReasons(h)", 0x48),
    ("clocks.reasons 0x48", "", "n.nvmlDeviceGetCurrentClocksThrottleReasons(h)", 0x48),
    ("throttle.hw_thermal_ns 5", "", "n.nvmlDeviceGetFieldValues(h, [270])[0].value.ullVal", 5),
    ("throttle.power_brake_ns 6", "", "n.nvmlDeviceGetFieldValues(h, [271])[0].value.ullVal", 6),
    ("pstate 8", "", "n.nvmlDeviceGetPerformanceState(h)", 8),
    ("pcie.width 8", "", "n.nvmlDeviceGetCurrPcieLinkWidth(h)", 8),
    ("pcie.width_max 8", "", "n.nvmlDeviceGetMaxPcieLinkWidth(h)", 8),
    ("pcie.gen 1", "", "n.nvmlDeviceGetCurrPcieLinkGeneration(h)", 1),
    ("pcie.gen_max 4", "", "n.nvmlDeviceGetMaxPcieLinkGeneration(h)", 4),
    ("pcie.gen_gpu_max 6", "", "n.nvmlDeviceGetGpuMaxPcieLinkGeneration(h)", 6),
    ("pcie.replay 12", "", "n.nvmlDeviceGetPcieReplayCounter(h)", 12),
    ("fabric.state 2", FABRIC_V2, "r.state", 2),
    ("fabric.health_mask 0x55", FABRIC_V2, "r.healthMask", 0x55),
    ("fabric.health_summary 2", FABRIC_V3, "r.healthSummary", 2),
    ("fabric.status 999", FABRIC_V3, "r.status", 999),
    ("fabric.cluster_uuid 0102-03ff", FABRIC_V3, "bytes(r.clusterUuid)[:5].hex()", "010203ff00"),
    ("memory.used 1024", "", "n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used", 1024),
    ("inforom.valid no", "", "n.NVML_SUCCESS", 0),
]


def test_each_key_is_read_back(fake: FakeNvml, probe: Probes) -> None:
    """A key set for GPU 0 changes what is read of it, at once and in the same process."""
    child = probe()
    for line, before, expression, expected in KEYS:
        fake.start("B200")
        key, value = line.split(" ", 1)
        fake.set_gpu(0, key, value)
        child.do(before or "pass")
        assert child.do(expression) == expected, line
    assert child.code("n.nvmlDeviceValidateInforom(h)") == 14
    assert child.stderr == ""


def test_retired_pages_are_listed_where_they_exist(fake: FakeNvml, probe: Probes) -> None:
    """A GPU that retires pages lists them by cause and says what is pending."""
    child = probe()
    fake.set_gpu(0, "has.retired_pages", "yes")
    fake.set_gpu(0, "retired.dbe", 3)
    fake.set_gpu(0, "retired.pending", "yes")
    assert len(child.do("n.nvmlDeviceGetRetiredPages(h, 1)")) == 3
    assert [page["timestamp"] for page in child.do("n.nvmlDeviceGetRetiredPages_v2(h, 1)")] == [0, 0, 0]
    assert child.do("n.nvmlDeviceGetRetiredPages(h, 0)") == []
    assert child.do("n.nvmlDeviceGetRetiredPagesPendingStatus(h)") == 1


def test_each_link_has_its_own_state(fake: FakeNvml, probe: Probes) -> None:
    """A link goes down or counts errors alone; totals and NVLink5 fields follow."""
    child = probe()
    fake.set_link(0, 3, "up", "down")
    fake.set_link(0, 3, "crc_flit", 7)
    fake.set_link(0, 11, "crc_flit", 5)
    fake.set_link(0, 17, "recovery_failed", 2)
    fake.set_link("*", "*", "symbol_ber", 0x0F01)
    assert child.do("[n.nvmlDeviceGetNvLinkState(h, i) for i in range(5)]") == [1, 1, 1, 0, 1]
    assert child.do("n.nvmlDeviceGetNvLinkErrorCounter(h, 3, n.NVML_NVLINK_ERROR_DL_CRC_FLIT)") == 7
    values = "[v.value.ullVal for v in n.nvmlDeviceGetFieldValues(h, [35, 101, 38, (214, 17), (222, 0)])]"
    assert child.do(values) == [7, 5, 12, 2, 0x0F01]
    child.do(NVLINK_INFO)
    assert child.do("n.nvmlDeviceGetNvLinkRemoteDeviceType(h, 0)") == 2


def test_mig_devices_answer_for_themselves(fake: FakeNvml, probe: Probes) -> None:
    """A MIG device has a handle, ids, memory and processes of its own; its GPU loses links and remaps."""
    with fake.edit() as lines:
        lines += [
            "gpu 0 mig.mode on",
            "mig 0 1g.23gb uuid=MIG-1 gi=7 ci=0 memory=24159191040",
            "mig 0 3g.90gb uuid=MIG-2 gi=2 ci=1 memory=96636764160 slices=3",
            "process 0 4242 1024 gi=2 ci=1",
        ]
    child = probe()
    child.do("m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 1)")
    assert child.do("n.nvmlDeviceGetMigMode(h)") == [1, 0]
    assert child.do("n.nvmlDeviceGetUUID(m)") == "MIG-2"
    assert child.do("n.nvmlDeviceGetName(m)") == "NVIDIA B200 MIG 3g.90gb"
    assert child.do("(n.nvmlDeviceGetGpuInstanceId(m), n.nvmlDeviceGetComputeInstanceId(m))") == [2, 1]
    assert child.do("n.nvmlDeviceIsMigDeviceHandle(m)") == 1
    assert child.do("n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m)") == child.do("h")
    assert child.do("n.nvmlDeviceGetHandleByUUID(b'MIG-2')") == child.do("m")
    assert child.do("n.nvmlDeviceGetMemoryInfo(m).used") == 1024
    assert child.do("n.nvmlDeviceGetAttributes_v2(m).gpuInstanceSliceCount") == 3
    assert child.do("n.nvmlDeviceGetComputeRunningProcesses(m)[0].pid") == 4242
    assert child.code("n.nvmlDeviceGetEccMode(m)") == 3
    assert child.code("n.nvmlDeviceGetMigDeviceHandleByIndex(h, 2)") == 6
    assert child.code("n.nvmlDeviceGetRemappedRows(h)") == 3
    assert child.do("n.nvmlDeviceGetNvLinkState(h, 0)") == 0


VERSIONED = [
    ("c_nvmlEccSramErrorStatus_v1_t", "nvmlDeviceGetSramEccErrorStatus"),
    ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlMarginTemperature_v1_t", "nvmlDeviceGetMarginTemperature"),
    ("c_nvmlMemory_v2_t", "nvmlDeviceGetMemoryInfo_v2"),
    ("c_nvmlNvLinkInfo_v2_t", "nvmlDeviceGetNvLinkInfo"),
    ("c_nvmlRepairStatus_t", "nvmlDeviceGetRepairStatus"),
    ("c_nvmlTemperature_v1_t", "nvmlDeviceGetTemperatureV"),
    ("c_nvmlUnrepairableMemory_v1_t", "nvmlDeviceGetUnrepairableMemoryFlag_v1"),
    ("nvmlPciInfoExt_v1_t", "nvmlDeviceGetPciInfoExt"),
]


def test_a_wrong_struct_version_is_refused(probe: Probes) -> None:
    """Each versioned struct is refused with 25 when its version word is another's."""
    child = probe()
    for struct, function in VERSIONED:
        child.do(f"r = n.{struct}(); r.version = 0x9000008")
        assert child.do(f"n._nvmlGetFunctionPointer('{function}')(h, n.byref(r))") == 25, function


def test_an_old_driver_lacks_what_came_later(fake: FakeNvml, probe: Probes) -> None:
    """On driver 550 fabric V3 is an unknown version and later functions are not there."""
    fake.start("H100", driver="550.90.07", missing=ABSENT_IN_550)
    child = probe()
    assert child.code(FABRIC_V3) == 25
    assert child.code(FABRIC_V2) == 0
    assert child.code("n.nvmlDeviceGetMarginTemperature(h)") == 13
    assert child.do("n.nvmlDeviceGetFieldValues(h, [230])[0].nvmlReturn") == 3


# a bad line, and what its sentence must name
BAD_LINES = [
    ("frobnicate 1", 'unknown kind of line "frobnicate"'),
    ("profile V100", 'unknown profile "V100"'),
    ("profile H100 99", "at most 16 GPUs"),
    ("gpu 8 temperature 3", 'there is no GPU "8"'),
    ("gpu 0 temprature 3", 'unknown key "temprature"'),
    ("gpu 0 temperature warm", '"warm" is no whole number'),
    ("gpu 0 state dead", "a state is ok, lost"),
    ("gpu 0 minor -1", '"-1" is neither a number nor yes or no'),
    ("gpu 0 pcie.replay 5 rate=fast", "a counter takes NUMBER"),
    ("gpu 0 uuid " + "x" * 200, "is too long"),
    ("gpu 0", '"gpu" takes a GPU, a key and a value'),
    ("nvlink 0 99 up down", 'the link "99"'),
    ("call nvmlInit explode", '"explode" is none of return, block'),
    ("call nvmlInit return MAYBE", 'not "MAYBE"'),
    ("call nvmlInit block gpu=77", 'there is no GPU "77"'),
    ("call nvmlInit block times=often", '"from" and "times"'),
    ("call nvmlInit block after=3", '"after=3" is none of gpu='),
    ("event 0 0 xid 79", "an ID from 1 on"),
    ("event 5 0 sneeze 79", '"event" takes ID GPU TYPE DATA'),
    ("field 0 230 perhaps 3", 'neither "return CODE" nor'),
    ("process 0 x 3", '"process" takes GPU PID BYTES'),
    ("mig 0 1g.10gb", '"mig" takes GPU PROFILE'),
    ("stale_code sometimes", '"stale_code" takes'),
    ("driver", '"driver" takes one version'),
]


def test_a_bad_line_is_one_sentence_and_no_more(fake: FakeNvml, probe: Probes) -> None:
    """Each bad line is named once with its reason, and the rest of the file holds."""
    with fake.edit() as lines:
        lines.extend([*(line for line, _ in BAD_LINES), "gpu 0 serial still-read"])
    child = probe()
    assert child.do("n.nvmlDeviceGetSerial(h)") == "still-read"
    child.kill()
    said = child.stderr.splitlines()
    assert len(said) == len(BAD_LINES)
    for sentence, (line, reason) in zip(said, BAD_LINES, strict=True):
        assert f'"{line[:120]}"' in sentence
        assert reason in sentence


@pytest.mark.parametrize(
    "content", [b"", b"\0\xff\n\x80 gpu\n", b"profile H100 8\n" + b"gpu 0 " * 9999, b"\n\n  \t\n"]
)
def test_a_hopeless_file_is_no_driver(fake: FakeNvml, probe: Probes, content: bytes) -> None:
    """A file of no sense at all never ends the process that reads it."""
    fake.path.write_bytes(content)
    child = probe(initialise=False)
    assert child.code("n.nvmlInit()") == (0 if content.startswith(b"profile") else 9)


def test_a_file_that_vanishes_leaves_the_last_reading(fake: FakeNvml, probe: Probes) -> None:
    """Without its file a running process goes on; a new one finds no driver and says why."""
    child = probe()
    environment = fake.environment()
    fake.path.unlink()
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0
    with Probes(lambda: environment) as probes:
        fresh = probes(initialise=False)
        assert fresh.code("n.nvmlInit()") == 9
        fresh.kill()
        assert "cannot read the scenario" in fresh.stderr


def test_readers_never_see_half_a_change(fake: FakeNvml, probe: Probes) -> None:
    """Two values written together are read together while two threads read and one process writes."""
    child = probe()
    child.do(
        "def look(seconds):\n"
        "    import time\n"
        "    end, odd = time.monotonic() + seconds, 0\n"
        "    while time.monotonic() < end:\n"
        "        rows = n.nvmlDeviceGetRemappedRows(h)\n"
        "        odd += rows[0] != rows[1]\n"
        "    return odd\n"
    )
    looks = [child.start("look(1)") for _ in range(2)]
    number = 0
    while not looks[0].done():
        number += 1
        with fake.edit() as lines:
            lines[2:] = [f"gpu 0 remap.corrected {number}", f"gpu 0 remap.uncorrected {number}"]
    assert number > 1
    assert [look.result() for look in looks] == [0, 0]
    assert child.do("n.nvmlDeviceGetRemappedRows(h)[0]") == number


def test_old_readings_are_let_go(fake: FakeNvml, probe: Probes) -> None:
    """Hundreds of changes do not make the reading process grow."""
    child = probe()
    resident = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    sizes_bytes = []
    for celsius in range(400):
        fake.set_gpu(0, "temperature", celsius)
        assert child.do("n.nvmlDeviceGetTemperature(h, 0)") == celsius
        sizes_bytes.append(child.do(resident))
    assert sizes_bytes[-1] - sizes_bytes[100] < 4 << 20


def test_writers_do_not_lose_each_others_lines(fake: FakeNvml) -> None:
    """Processes that edit at once all leave their lines."""
    code = (
        "import sys; from pathlib import Path; from control import FakeNvml\n"
        "fake = FakeNvml(Path(sys.argv[1]))\n"
        "for i in range(20): fake.add_event(0, 'xid', 13)\n"
    )
    folder = Path(__file__).parent / "fakenvml"
    command = [sys.executable, "-c", code, str(fake.path)]
    writers = [subprocess.Popen(command, cwd=folder) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    ids = [line.split()[1] for line in fake.path.read_text().splitlines() if line.startswith("event")]
    assert sorted(ids, key=int) == [str(number) for number in range(1, 61)]


def test_the_library_is_built_once(tmp_path: Path) -> None:
    """A second build of the same sources is the first; another set of missing functions is another."""
    first = build_library(tmp_path)
    stamp = (first / "libnvidia-ml.so.1").stat().st_mtime_ns
    assert build_library(tmp_path) == first
    assert (first / "libnvidia-ml.so.1").stat().st_mtime_ns == stamp
    assert build_library(tmp_path, ["nvmlDeviceGetName"]) != first


def test_control_does_not_load_pynvml() -> None:
    """The control module speaks of GPUs without the library that reads them."""
    code = "import sys, control; sys.exit('pynvml' in sys.modules)"
    folder = Path(__file__).parent / "fakenvml"
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0


def test_a_delay_ends_with_its_rule(fake: FakeNvml, probe: Probes) -> None:
    """A delayed call waits its time, or only until the rule goes."""
    child = probe()
    fake.add_rule("nvmlDeviceGetName", "delay 300")
    begun = time.monotonic()
    child.do("n.nvmlDeviceGetName(h)")
    assert time.monotonic() - begun >= 0.3
    fake.add_rule("nvmlDeviceGetName", "delay 3600000")
    call = child.start("n.nvmlDeviceGetName(h)")
    assert not call.done(0.5)
    fake.clear_rules()
    assert call.result() == "NVIDIA B200"
