"""The demo's second act: three pods in private network namespaces send to the internet side of a shaped node.

Rules, sets, device and filter are made in the namespaces alone and end with them; the host's own network is
never touched. A step is added by adding a line to STORY.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from nodeagent.client import Unreachable, ask
from nodeagent.report.net_schema import NetTopReport, PodTraffic, decode_top
from nodeagent.report.render_net import render_top
from tests.demo_screen import Screen
from tests.netns import flows, shaped, world
from tests.netns.agent import NetAgent, Pod, pod
from tests.netns.world import INSIDE, INTERNET, POD_A, POD_B, World

ACT_SECONDS = 24.0
"""From the first step on; the flows end by themselves soon after."""
STEP_SECONDS = 12.0
KEPT_SECONDS = 5.0
"""For each step to come."""
LOOK_SECONDS = 0.5
BETWEEN_SECONDS = 1.5
"""Between the two readings that a rate is from, at least."""
BUDGET, LIMIT, HIGHER_LIMIT, GUARANTEE = "100M", "20M", "40M", "60M"
CLUSTER_BITS_PER_SECOND, DATAGRAM_BYTES = 200e6, 1400
NOTEBOOK = "10.244.1.12"
"""Behind the same device as trainer's address."""
COMMAND = "nodeagent net top"


def _scraper(limit: str) -> Pod:
    return pod("scraper", POD_A[4], POD_A[6], namespace="web", limit=limit)


PODS = (
    _scraper(LIMIT),
    pod("trainer", POD_B[4], POD_B[6], namespace="ml", guarantee=GUARANTEE),
    pod("notebook", NOTEBOOK, namespace="dev"),
)


class Rates:
    """What two answers of `nodeagent net top` say."""

    def __init__(self, report: NetTopReport, before: NetTopReport | None) -> None:
        self._report, self._before = report, before

    def sent(self, name: str) -> float:
        """Bits/s of a pod's class; 0 while not known."""
        one = _find(self._report, name)
        return float(one.shape.rate_bits_per_second or 0) if one and one.shape else 0.0

    def limit(self, name: str) -> int:
        """Bits/s; 0 while the pod has no class."""
        one = _find(self._report, name)
        return one.shape.limit_bits_per_second if one and one.shape else 0

    def to_cluster(self, name: str) -> float:
        """Bits/s of a pod to the cluster; 0 while not known."""
        if self._before is None:
            return 0.0
        now, then = _find(self._report, name), _find(self._before, name)
        until_seconds, since_seconds = self._report.links_read_seconds, self._before.links_read_seconds
        if not (now and then and until_seconds and since_seconds and until_seconds > since_seconds):
            return 0.0
        sent_bytes = (now.traffic.cluster_out_bytes or 0) - (then.traffic.cluster_out_bytes or 0)
        return 8 * sent_bytes / (until_seconds - since_seconds)


def _find(report: NetTopReport, name: str) -> PodTraffic | None:
    return next((one for one in report.pods if one.name == name), None)


class Stage:
    """The node, its pods, and what they send."""

    def __init__(self, place: World) -> None:
        self._world = place
        place.command("pod-b", "ip", "addr", "add", f"{NOTEBOOK}/32", "dev", "eth0")
        place.command("node", "ip", "route", "add", f"{NOTEBOOK}/32", "dev", "vethb")
        self.agent = NetAgent(place, "nft", shaped.PRODUCTION_PERIODS, internet_budget=BUDGET)
        self.agent.pods(*PODS)
        self.agent.start()
        self._reports: list[NetTopReport] = []
        self._trainer: subprocess.Popen[Any] | None = None

    def why_not(self) -> str:
        """Why this kernel cannot limit pods; "" once it does, and the receivers are there."""
        end_seconds = time.monotonic() + STEP_SECONDS
        while not shaped.is_shaped(self.agent, *PODS):
            with contextlib.suppress(Unreachable):
                network = self._ask().network
                if network.shaping == "count-only":
                    return f"needs a kernel that can: {network.shaping_reason}"
            if time.monotonic() > end_seconds:
                raise RuntimeError(f"the pods are not limited in time\n{self.agent.log()}")
            time.sleep(0.1)
        for namespace in ("outside", "inside"):
            flows.Sink(self._world, namespace)
        return ""

    def scraper_and_notebook_send(self) -> None:
        """Both to the internet as fast as they may, scraper to the cluster too."""
        flows.start_tcp(self._world, "pod-a", INTERNET[4], 2 * ACT_SECONDS)
        flows.start_tcp(self._world, "pod-b", INTERNET[4], 2 * ACT_SECONDS, source=NOTEBOOK)
        flows.start_udp(self._world, "pod-a", INSIDE[4], 2 * ACT_SECONDS, CLUSTER_BITS_PER_SECOND,
                        size_bytes=DATAGRAM_BYTES)

    def trainer_sends(self) -> None:
        """As fast as it may."""
        self._trainer = flows.start_tcp(self._world, "pod-b", INTERNET[4], ACT_SECONDS, source=POD_B[4])

    def trainer_ends(self) -> None:
        """And the annotation of scraper is changed."""
        if self._trainer is not None:
            self._trainer.kill()
        self.agent.pods(_scraper(HIGHER_LIMIT), *PODS[1:])

    def look(self, screen: Screen) -> tuple[Rates, str]:
        """The rates now, and the screen of `nodeagent net top`."""
        report = self._ask()
        now_seconds = report.marks_read_seconds or 0.0
        older = [
            one for one in self._reports
            if one.marks_read_seconds and one.marks_read_seconds < now_seconds - BETWEEN_SECONDS
        ]  # fmt: skip
        before = older[-1] if older else None
        self._reports.append(report)
        return Rates(report, before), render_top(report, before, width=screen.width)

    def _ask(self) -> NetTopReport:
        return decode_top(ask(str(self.agent.folder / "s.sock"), "GET", "/v1/net/top").body)


class Step(Struct, frozen=True, kw_only=True):
    """One scene."""

    caption: str
    act: Callable[[Stage], object]
    shows: Callable[[Rates], object]
    """True for the rates that the viewer is waiting for."""
    stay_seconds: float = 5.0


STORY = (
    Step(
        caption=f"Three pods share a node's budget of {BUDGET} bits/s to the internet. web/scraper is "
        f"limited to {LIMIT} by its annotation and held there; dev/notebook is plain and has the rest. What "
        "scraper sends to the cluster at the same time is not limited.",
        act=Stage.scraper_and_notebook_send,
        shows=lambda r: 18e6 < r.sent("scraper") < 21e6 and r.sent("notebook") > 60e6
        and r.to_cluster("scraper") > 60e6,
    ),
    Step(
        caption=f"ml/trainer has a guarantee of {GUARANTEE} and begins to send: it has that at once and "
        "more, the others share what it leaves.",
        act=Stage.trainer_sends, shows=lambda r: r.sent("trainer") > 57e6,
    ),
    Step(
        caption=f"trainer is done. The annotation of web/scraper is changed from {LIMIT} to {HIGHER_LIMIT}: "
        "the flow that runs follows, on the same connection.",
        act=Stage.trainer_ends,
        shows=lambda r: r.limit("scraper") == 40_000_000 and 36e6 < r.sent("scraper") < 42e6,
    ),
)  # fmt: skip


def play(screen: Screen, stay_factor: float) -> bool:
    """Make the node, tell the story, take everything away; False when what should follow does not.

    Where no such node can be made it says so in one line, and that is no failure.
    """
    why = world.missing().replace("run as root", "sudo make demo")
    with contextlib.ExitStack() as ends:
        if not why:
            screen.note("Making a node with three pods in network namespaces of their own ...")
            try:
                stage = Stage(ends.enter_context(World(masquerade=True)))
            except RuntimeError as error:
                said = str(error).partition("\n")[0]
                why = f"needs network namespaces: run as root, in a container with --privileged ({said})"
            else:
                why = stage.why_not()
        if why:
            sys.stdout.write(f"\nLimits of pods' traffic are not shown here: this {why}\n")
            return True
        return _tell(stage, screen, stay_factor)


def _tell(stage: Stage, screen: Screen, stay_factor: float) -> bool:
    end_seconds = time.monotonic() + ACT_SECONDS
    for number, step in enumerate(STORY, 1):
        latest_seconds = end_seconds - KEPT_SECONDS * (len(STORY) - number)
        heading = f"nodeagent demo, pods' traffic, {number} of {len(STORY)}"
        if not _step(stage, screen, heading, step, step.stay_seconds * stay_factor, latest_seconds):
            sys.stderr.write(f"the agent did not follow: {step.caption}\n{stage.agent.log()}\n")
            return False
    return True


def _step(
    stage: Stage, screen: Screen, heading: str, step: Step, stay_seconds: float, latest_seconds: float
) -> bool:
    step.act(stage)
    deadline_seconds = time.monotonic() + STEP_SECONDS
    rates, text = stage.look(screen)
    while not step.shows(rates):
        if time.monotonic() > deadline_seconds:
            return False
        if screen.in_place:
            screen.draw(heading, step.caption, COMMAND, text)
        time.sleep(LOOK_SECONDS)
        rates, text = stage.look(screen)
    screen.draw(heading, step.caption, COMMAND, text)
    stay_until_seconds = min(time.monotonic() + stay_seconds, latest_seconds)
    while time.monotonic() < stay_until_seconds:
        time.sleep(LOOK_SECONDS)
        if screen.in_place:
            screen.draw(heading, step.caption, COMMAND, stage.look(screen)[1])
    return True
