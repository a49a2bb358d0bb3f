"""The demo: the real daemon on a node with eight scripted H100s, and on one that limits its pods' traffic.

Needs no GPU, ends by itself within 90 seconds and leaves nothing behind, also after Ctrl-C. The second node
is made of network namespaces, so it needs root; where it cannot be made the first is shown alone.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nodeagent.report.render import render_status  # noqa: E402  a clone is run as it stands
from nodeagent.report.schema import decode_status  # noqa: E402
from tests import demo_cluster, demo_pods  # noqa: E402
from tests.agent import Agent, Status  # noqa: E402
from tests.demo_cluster import Cluster  # noqa: E402
from tests.demo_screen import Screen  # noqa: E402
from tests.demo_story import SECTIONS, STORY, Step  # noqa: E402
from tests.netns.world import missing  # noqa: E402

STORY_SECONDS, SHORT_STORY_SECONDS = 78.0, 52.0
"""Of the GPUs: alone, and with the pods' traffic after it."""
STEP_SECONDS = 15.0
ACT_SECONDS = 6.0
"""Kept for each step to come: on a slow machine there is less time to read, and the story still ends."""
REDRAW_SECONDS = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NO_COMPILER = (
    "the demo compiles a scripted NVML library and finds no C compiler: apt-get install gcc libc6-dev\n"
)
MORE = """
Those were screens of nodeagent's own commands; the periods of the GPUs' checks are shortened.

  make run                      the agent on this machine, with or without a GPU
  .venv/bin/nodeagent explain xid.48
                                what to do about a fault, here Xid 48
  docs/shaping.md               limits and guarantees of pods' traffic
  README.md, docs/design.md     what it watches, how it decides, what it never does
"""


class Show:
    """Plays the steps on one node."""

    def __init__(
        self, agent: Agent, cluster: Cluster | None, screen: Screen, stay_factor: float, story_seconds: float
    ) -> None:
        self._agent = agent
        self._cluster = cluster
        self._node = ""
        self._screen = screen
        self._stay_factor = stay_factor
        self._end_seconds = time.monotonic() + story_seconds

    def play(self, number: int, step: Step) -> bool:
        """Let it happen and show it; False when what should follow does not."""
        heading = f"nodeagent demo, GPUs, {number} of {len(STORY)}"
        step.act(self._agent)
        deadline_seconds = min(time.monotonic() + STEP_SECONDS, self._end_seconds)
        while not step.shows(self._drawn(heading, step, last=False)) or not self._is_as_told(step):
            if time.monotonic() > deadline_seconds:
                return False
            time.sleep(REDRAW_SECONDS)
        stay_until_seconds = time.monotonic() + step.stay_seconds * self._stay_factor
        latest_seconds = self._end_seconds - ACT_SECONDS * (len(STORY) - number)
        self._drawn(heading, step, last=True)
        while time.monotonic() < min(stay_until_seconds, latest_seconds):
            time.sleep(REDRAW_SECONDS)
            self._drawn(heading, step, last=False)
        return True

    def _is_as_told(self, step: Step) -> bool:
        """True when the Node object is as the step says; looks at it for the frames to come."""
        if self._cluster is None:
            return True
        if step.tainted not in (None, self._cluster.is_tainted()):
            return False
        self._node = self._cluster.shown()
        return True

    def _drawn(self, heading: str, step: Step, *, last: bool) -> Status:
        """The status now; drawn, unless the frames follow each other and this is not the step's last."""
        status = self._agent.status()
        if last or self._screen.in_place:
            report = decode_status(self._agent.raw("/v1/status"))
            text = render_status(report, color=self._screen.in_place, width=self._screen.width)
            self._screen.draw(heading, step.caption, "nodeagent status", text + self._node)
        return status


def main() -> int:
    """Play the story; 0, or 1 when the agent did not do what the story tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="do not stay at each step to be read")
    parser.add_argument("--act", choices=("both", "gpus", "pods"), default="both", help="show one alone")
    args = parser.parse_args()
    if args.act != "pods" and shutil.which("gcc") is None:
        sys.stderr.write(NO_COMPILER)
        return 69
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupted)
    try:
        with tempfile.TemporaryDirectory(prefix="nodeagent-demo-") as folder:
            return _run(Path(folder), args.act, 0.0 if args.fast else 1.0)
    except KeyboardInterrupt:
        sys.stdout.write("\nended; nothing is left behind\n")
        return 130


def _run(folder: Path, act: str, stay_factor: float) -> int:
    if act != "pods":
        sys.stdout.write("Compiling the scripted NVML library, starting the agent ...\n")
        sys.stdout.flush()
        is_followed = act == "both" and not missing()
        if not _play_gpus(folder, stay_factor, SHORT_STORY_SECONDS if is_followed else STORY_SECONDS):
            return 1
    if act != "gpus" and not demo_pods.play(Screen(), stay_factor):
        return 1
    sys.stdout.write(MORE)
    return 0


def _play_gpus(folder: Path, stay_factor: float, story_seconds: float) -> bool:
    with contextlib.ExitStack() as stack:
        cluster = None
        if reason := demo_cluster.missing():
            sys.stdout.write(f"Without an API server, so no taint is set: this {reason}\n")
        else:
            cluster = stack.enter_context(demo_cluster.Cluster(folder))
        agent = Agent(folder, sections=SECTIONS, build_root=folder / "library")
        if cluster is not None:
            cluster.wait()
            agent.prefix = cluster.prefix
            agent.configure({**SECTIONS, **cluster.sections()})
        stack.enter_context(agent)
        show = Show(agent, cluster, Screen(), stay_factor, story_seconds)
        for number, step in enumerate(STORY, 1):
            if not show.play(number, step):
                sys.stderr.write(f"the agent did not follow step {number}; its last lines:\n{agent.log()}\n")
                return False
        agent.stop()
    return True


def _interrupted(_number: int, _frame: object) -> NoReturn:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second one must not stop the cleaning up
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
