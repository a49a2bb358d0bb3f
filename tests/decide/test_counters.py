"""How fast counters grow: baseline, growth, falls, and what is kept for how long."""

from __future__ import annotations

from nodeagent.decide import counters, gpus
from nodeagent.errors import ErrorKind
from nodeagent.memory import GpuMemory, Memory
from nodeagent.signals import EccCounters, Unread
from tests.decide.build import GPU, now, snapshot

KNOWN = Memory(boot_id="boot-1", node_name="gpu-a17", gpus={GPU: GpuMemory()})


def read(memory: Memory, corrected: int, at_seconds: float) -> Memory:
    """Memory after one more read of the corrected errors."""
    ecc = EccCounters(
        volatile_uncorrected=0, volatile_corrected=corrected, aggregate_uncorrected=0, aggregate_corrected=0
    )
    return counters.remember(memory, snapshot({f"gpu.ecc@{GPU}": ecc}, read_at_seconds=at_seconds))


def rate(memory: Memory) -> float | None:
    """Corrected errors per second."""
    return counters.per_second(memory, "gpu.ecc", GPU)


def test_the_first_read_is_a_baseline() -> None:
    """A large count at start says nothing; the growth after it does."""
    first = read(KNOWN, 50_000_000, 100.0)

    assert rate(first) is None
    assert rate(read(first, 50_000_150, 115.0)) == 10.0


def test_the_same_read_again_changes_nothing() -> None:
    """A cycle between two polls keeps the window."""
    grown = read(read(KNOWN, 0, 100.0), 150, 115.0)

    assert read(grown, 150, 115.0) == grown


def test_a_counter_that_fell_is_a_baseline_again() -> None:
    """A reset starts the counter anew: no negative and no huge rate."""
    fallen = read(read(KNOWN, 9_000, 100.0), 3, 115.0)

    assert rate(fallen) is None
    assert rate(read(fallen, 33, 130.0)) == 2.0


def test_an_unread_counter_keeps_its_window() -> None:
    """Growth over a gap is spread over the whole gap."""
    first = read(KNOWN, 0, 100.0)
    blank = Unread(kind=ErrorKind.TIMEOUT, reason="no answer")
    after = counters.remember(first, snapshot({f"gpu.ecc@{GPU}": blank}))

    assert after == first
    assert rate(read(after, 600, 160.0)) == 10.0


def test_a_new_boot_forgets_the_windows() -> None:
    """The monotonic clock begins anew, so the old times mean nothing."""
    grown = read(read(KNOWN, 0, 100.0), 150, 115.0)

    assert gpus.begin_boot(grown, now(boot_id="boot-2"), "gpu-a17").counter_windows == {}


def test_only_known_gpus_are_kept() -> None:
    """A device that Memory does not know cannot grow it."""
    assert read(Memory(), 5, 100.0).counter_windows == {}
