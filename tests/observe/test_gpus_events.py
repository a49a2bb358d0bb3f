"""Xid events arrive at once, whatever the rest of NVML does."""

from __future__ import annotations

import asyncio

from nodeagent.signals import GpuPresence
from tests.drivers.rig import until
from tests.fakenvml.control import FakeNvml
from tests.observe.gpu_rig import ADDRESSES, GpuRig, needs_gcc, sampling

pytestmark = needs_gcc

EVENT_CALLS = ["nvmlEventSetWait_v2", "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents",
               "nvmlDeviceGetSupportedEventTypes"]


async def listening(rig: GpuRig, sets: int = 8) -> None:
    """Wait until that many event sets are waited on."""
    await rig.first_read()
    await until(lambda: rig.fake.calls("nvmlEventSetWait_v2") >= sets)


def test_an_xid_arrives_while_every_other_call_blocks(fake: FakeNvml) -> None:
    """Waiting is independent of reading: the event is in the inbox, urgent, with its GPU's address."""

    async def main(rig: GpuRig) -> None:
        await listening(rig)
        fake.add_rule("*", "block", excluded=EVENT_CALLS)
        await until(lambda: rig.worker.status.pending_call)
        rig.inbox.drain()
        fake.add_event(3, "xid", 79)
        await asyncio.wait_for(rig.inbox.urgent.wait(), 20)
        (event,) = rig.xids()
        assert (event.source, event.pci_address, event.number) == ("nvml", ADDRESSES[3], 79)
        assert (event.count, event.text) == (1, f"NVML event: Xid 79 on GPU {ADDRESSES[3]}")

    sampling(fake, main, call_deadline_seconds=10, stuck_seconds=30, kill_seconds=600)


def test_a_number_newer_than_the_library_stays_999(fake: FakeNvml) -> None:
    """999 is forwarded as it came: only the kernel line knows the number."""

    async def main(rig: GpuRig) -> None:
        await listening(rig)
        fake.add_event(0, "xid", 500)
        await until(rig.xids)
        assert [event.number for event in rig.xids()] == [999]

    sampling(fake, main)


def test_a_storm_arrives_as_counts(fake: FakeNvml) -> None:
    """Two hundred events of two kinds lose none and take few lines."""

    async def main(rig: GpuRig) -> None:
        await listening(rig)
        with fake.edit() as lines:
            lines.extend(f"event {n} 4 xid {(31, 43)[n % 2]}" for n in range(1000, 1200))
        await until(lambda: sum(event.count for event in rig.xids()) == 200)
        counts = {number: sum(e.count for e in rig.xids() if e.number == number) for number in (31, 43)}
        assert counts == {31: 100, 43: 100}
        assert len(rig.xids()) < 50

    sampling(fake, main)


def test_a_mig_event_names_its_instance(fake: FakeNvml) -> None:
    """The evidence tells GPU and compute instance; other events do not mention any."""

    async def main(rig: GpuRig) -> None:
        await listening(rig)
        fake.add_event(1, "xid", 13, gi=2, ci=0)
        await until(rig.xids)
        assert rig.xids()[0].text.endswith(f"Xid 13 on GPU {ADDRESSES[1]} GI 2 CI 0")

    sampling(fake, main)


def test_a_lost_gpu_neither_spins_nor_silences_the_others(fake: FakeNvml) -> None:
    """Its Wait answers at once for ever; it is asked seldom, and the other GPUs' events still come."""

    async def main(rig: GpuRig) -> None:
        await listening(rig)
        fake.add_event(3, "xid", 79)
        fake.set_gpu(3, "state", "lost")
        await until(lambda: rig.value("gpu.presence", 3) != GpuPresence(reachable=True))
        before = fake.calls("nvmlEventSetWait_v2")
        await asyncio.sleep(2)
        assert fake.calls("nvmlEventSetWait_v2") - before < 60
        fake.add_event(4, "xid", 31)
        await until(lambda: {(e.pci_address, e.number) for e in rig.xids()} >= {
            (ADDRESSES[3], 79), (ADDRESSES[4], 31)
        })

    sampling(fake, main)


def test_a_set_that_fails_is_built_anew(fake: FakeNvml) -> None:
    """Registration and Wait that answer UNKNOWN cost a pause, not the events that come afterwards."""
    fake.add_rule("nvmlDeviceRegisterEvents", "return UNKNOWN", gpu=2, times=1)
    fake.add_rule("nvmlEventSetWait_v2", "return UNKNOWN", times=3)

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await until(lambda: fake.calls("nvmlDeviceRegisterEvents") >= 8 + 4)
        before = fake.calls("nvmlEventSetWait_v2")
        await until(lambda: fake.calls("nvmlEventSetWait_v2") > before + 8)
        for gpu in range(8):
            fake.add_event(gpu, "xid", 31)
        await until(lambda: {event.pci_address for event in rig.xids()} == set(ADDRESSES))

    sampling(fake, main)


def test_a_driver_without_events_is_read_without_them(fake: FakeNvml) -> None:
    """Where event sets are not supported the threads end and the read-alls go on."""
    fake.add_rule("nvmlEventSetCreate", "return NOT_SUPPORTED")

    async def main(rig: GpuRig) -> None:
        await rig.first_read()
        await rig.good_read()
        assert fake.calls("nvmlEventSetWait_v2") == 0
        assert fake.calls("nvmlEventSetCreate") == 8

    sampling(fake, main)
