"""NVLinks, fabric and the cost of a read, with the real pynvml on scripted GPUs."""

from __future__ import annotations

import pytest

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import FabricState, NvLinkErrors, NvLinks
from nodeagent.signals import Unread
from tests.fakenvml.control import FakeNvml
from tests.observe.gpu_rig import GpuRig, needs_gcc, sampling

pytestmark = needs_gcc


def address(rig: GpuRig, index: int = 0) -> str:
    """PCI address of a GPU of whatever profile."""
    return str(rig.value("gpu.devices")[index].pci_address)


@pytest.mark.parametrize(("profile", "links"), [("A100", 12), ("H100", 18), ("B200", 18)])
def test_a_link_that_is_down_is_named(fake: FakeNvml, profile: str, links: int) -> None:
    """By fields or link by link, as the product can; the other GPU has all its links."""
    fake.start(profile, gpus=2)
    fake.set_link(0, 3, "up", "down")
    fake.set_link(0, 11, "up", "down")

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        assert rig.value("gpu.nvlink", address(rig, 0)) == NvLinks(link_count=links, inactive=(3, 11))
        assert rig.value("gpu.nvlink", address(rig, 1)) == NvLinks(link_count=links)
        asked_by_link = fake.calls("nvmlDeviceGetNvLinkState") > 0
        assert asked_by_link == (profile == "A100")

    sampling(fake, main)


@pytest.mark.parametrize("profile", ["H100", "B200"])
def test_error_counters_are_summed_over_all_links(fake: FakeNvml, profile: str) -> None:
    """Damaged packets on one side; replays, recoveries and failed recoveries on the other."""
    fake.start(profile, gpus=1)
    fake.set_link(0, 0, "crc_flit", 5)
    fake.set_link(0, 17, "crc_data", 7)
    fake.set_link(0, 1, "replay", 2)
    fake.set_link(0, 2, "recovery", 3)
    fake.set_link(0, 4, "recovery_failed", 10)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        failed = 10 if profile == "B200" else 0
        assert rig.value("gpu.nvlink_errors", address(rig)) == NvLinkErrors(
            crc_errors=12, recovery_errors=5 + failed
        )

    sampling(fake, main)


@pytest.mark.parametrize("mode", ["no links", "MIG"])
def test_links_that_cannot_be_judged_are_absent(fake: FakeNvml, mode: str) -> None:
    """A GPU without NVLink, and one in MIG mode, whose links all read as down."""
    fake.start("L4" if mode == "no links" else "H100", gpus=1)
    fake.set_gpu(0, "mig.mode", int(mode == "MIG"))

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        for signal in ("gpu.nvlink", "gpu.nvlink_errors"):
            value = rig.value(signal, address(rig))
            assert isinstance(value, Unread) and value.kind is ErrorKind.ABSENT

    sampling(fake, main)


def test_links_come_back_when_mig_ends(fake: FakeNvml) -> None:
    """What MIG mode takes away is not remembered as lacking."""
    fake.start("H100", gpus=1)
    fake.set_gpu(0, "mig.mode", 1)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        fake.set_gpu(0, "mig.mode", 0)
        await rig.good_read()
        assert rig.value("gpu.nvlink", address(rig)) == NvLinks(link_count=18)

    sampling(fake, main)


# driver, functions it lacks, and what of the fabric can be known
FABRICS = [
    ("580.95.05", (), FabricState(state=2, status=3, health_mask=0x1AA, health_summary=1)),
    ("550.90.07", (), FabricState(state=2, status=3, health_mask=0x1AA)),
    ("535.104.05", ("nvmlDeviceGetGpuFabricInfoV",), FabricState(state=2, status=3)),
]


@pytest.mark.parametrize(("driver", "missing", "wanted"), FABRICS, ids=[row[0] for row in FABRICS])
def test_the_fabric_is_read_by_the_structure_that_the_driver_has(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, driver: str, missing: tuple[str, ...],
    wanted: FabricState,
) -> None:
    """The newest first; what an older one lacks is None, not zero."""
    fake.start("H100", gpus=1, driver=driver, missing=missing)
    fake.set_gpu(0, "fabric.state", 2)
    fake.set_gpu(0, "fabric.status", 3)
    monkeypatch.setenv("LD_LIBRARY_PATH", fake.environment({})["LD_LIBRARY_PATH"])

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        assert rig.value("gpu.fabric", address(rig)) == wanted

    sampling(fake, main)


EACH_READ = (
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuFabricInfoV",
)
"""What an idle H100 is asked once in each read-all; ECC totals are four calls more."""
ONCE = (
    "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetAddressingMode",
)
"""What it is asked once in the library's life."""
NEVER = ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPcieReplayCounter")


def test_a_read_all_costs_eighteen_calls_for_each_gpu(fake: FakeNvml) -> None:
    """One call brings all fields, links included; nothing that never changes is asked again."""
    fake.start("H100", gpus=8)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        before = {name: fake.calls(name) for name in (*EACH_READ, "nvmlDeviceGetTotalEccErrors")}
        await rig.good_read()
        grown = {name: fake.calls(name) - count for name, count in before.items()}
        reads = grown["nvmlDeviceGetFieldValues"] // 8
        assert grown == {**dict.fromkeys(EACH_READ, 8 * reads), "nvmlDeviceGetTotalEccErrors": 32 * reads}
        assert [fake.calls(name) for name in ONCE] == [8] * len(ONCE)
        assert [fake.calls(name) for name in NEVER] == [0] * len(NEVER)

    sampling(fake, main)


def test_memory_is_not_asked_for_while_a_process_holds_the_gpu(fake: FakeNvml) -> None:
    """A busy GPU costs one call less."""
    fake.start("H100", gpus=1)
    fake.set_processes(0, {4242: 1 << 30})

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        assert rig.value("gpu.ownerless_memory", address(rig)).used_bytes is None
        assert fake.calls("nvmlDeviceGetMemoryInfo_v2") == 0

    sampling(fake, main)
