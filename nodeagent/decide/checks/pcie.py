"""`pcie.width` and `pcie.replay`: does the GPU's PCIe link run as wide, as fast and as clean as it can?

An idle GPU lowers the generation by itself, so that is judged under load only; the width never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeagent.decide import counters
from nodeagent.decide.check import Check, CheckInput, HoldRule, Limit, bad, good, unknown
from nodeagent.gpu_signals import PcieLink
from nodeagent.model import Finding, NodeClass

SECONDS_PER_MINUTE = 60.0


def judge_width(given: CheckInput) -> Iterator[Finding]:
    """Fewer lanes than device and slot have, or a lower generation under load; number is lanes."""
    for target, link, reading in given.values("gpu.pcie_link"):
        shown: dict[str, Any] = {
            "value": f"x{link.lane_count} gen {link.generation}",
            "limit": f"x{link.max_lane_count} gen {link.max_generation}",
            "number": float(link.lane_count),
        }
        is_loaded = link.busy_percent is not None and link.busy_percent >= given.limits["load_percent"]
        if link.lane_count < link.max_lane_count:
            sentence = f"the PCIe link has {link.lane_count} of {link.max_lane_count} lanes"
            yield bad(target, reading, sentence, cause="width", **shown)
        elif link.generation < link.max_generation and is_loaded:
            sentence = (
                f"the PCIe link runs at generation {link.generation} of {link.max_generation} "
                f"while the GPU is {link.busy_percent} % busy"
            )
            yield bad(target, reading, sentence, cause="generation", **shown)
        else:
            yield good(target, reading, **shown)


def judge_replay(given: CheckInput) -> Iterator[Finding]:
    """More replays than generation and lanes explain are bad; number is replays per minute."""
    for target, _, reading in given.values("gpu.pcie_replay"):
        link = given.value("gpu.pcie_link", target)
        rate = counters.per_second(given.memory, "gpu.pcie_replay", target)
        if not isinstance(link, PcieLink):
            yield unknown(target, reading, "the link's width and generation are not read")
            continue
        if rate is None:
            yield good(target, reading, value="first sample")
            continue
        replays = rate * SECONDS_PER_MINUTE
        limit = replay_limit(link, given.limits["per_lane_per_minute"])
        shown = {"value": f"{replays:.1f}/min", "limit": f"{limit:.1f}/min", "number": replays}
        if replays <= limit:
            yield good(target, reading, **shown)
        else:
            yield bad(target, reading, f"{replays:.0f} PCIe packets a minute are sent again", **shown)


def replay_limit(link: PcieLink, per_lane: float) -> float:
    """Replays per minute that the link's own error rate explains; each generation doubles the speed.

    By the generation that the link can run at: an idle GPU runs slower at the moment of the poll only.
    """
    return per_lane * 2.0 ** (link.max_generation - 3) * float(link.lane_count)


CHECKS = (
    Check(
        id="pcie.width",
        title="PCIe link width and speed",
        family="gpu",
        signals=("gpu.pcie_link",),
        source="NVML PCIe link width and generation, now and at most",
        node_class=NodeClass.CHECK,
        judge=judge_width,
        limits=(
            Limit(name="load_percent", unit="%", default=20.0,
                  meaning="The generation is judged only while the GPU is at least so busy."),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
    Check(
        id="pcie.replay",
        title="PCIe replays",
        family="gpu",
        signals=("gpu.pcie_replay",),
        source="growth of NVML field 94 between two polls",
        node_class=NodeClass.CHECK,
        judge=judge_replay,
        limits=(
            Limit(name="per_lane_per_minute", unit="1/min", default=0.48,
                  meaning="Replays per lane and minute tolerated at generation 3; each later one doubles."),
        ),
        hold=HoldRule(bad_polls=3, of_polls=5),
        depends_on=("driver.stuck", "gpu.lost"),
    ),
)
