"""When a GPU on the PCI bus is a reason to load NVML anew."""

from __future__ import annotations

from nodeagent.observe.bus_watch import FIRST_PAUSE_SECONDS, TRIES, BusWatch

A, B, C = "0000:1b:00.0", "0000:43:00.0", "0000:52:00.0"


def test_a_gpu_that_came_to_the_bus_is_told_once_at_a_time() -> None:
    """It is named, and then left alone for the pause."""
    watch = BusWatch()

    assert watch.added([A], [A], 0.0) == ""
    assert watch.added([A, B], [A], 15.0) == B
    assert watch.added([A, B], [A], 30.0) == ""
    assert watch.added([A, B], [A], 15.0 + FIRST_PAUSE_SECONDS) == B


def test_what_nvml_did_not_find_at_first_is_no_newcomer() -> None:
    """A GPU that is on the bus and dead must not cost a worker after another."""
    watch = BusWatch()

    assert [watch.added([A, B], [A], at) for at in (0.0, 100.0, 5000.0)] == ["", "", ""]


def test_the_tries_for_one_gpu_end() -> None:
    """What the driver does not set up in the end is for `gpu.count`."""
    watch = BusWatch()
    watch.added([A], [A], 0.0)
    found = [watch.added([A, B], [A], 10_000.0 * number) for number in range(1, 10)]

    assert found == [B] * TRIES + [""] * (9 - TRIES)


def test_another_newcomer_has_tries_of_its_own() -> None:
    """The end of one GPU's tries does not silence the next one."""
    watch = BusWatch()
    watch.added([A], [A], 0.0)
    for number in range(1, 10):
        watch.added([A, B], [A], 10_000.0 * number)

    assert watch.added([A, B, C], [A], 200_000.0) == C


def test_a_gpu_that_left_and_came_back_is_new() -> None:
    """Its old handle is dead, whatever the address says."""
    watch = BusWatch()
    watch.added([A, B], [A, B], 0.0)
    watch.added([A], [A], 15.0)

    assert watch.added([A, B], [A], 30.0) == B
