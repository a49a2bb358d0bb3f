"""The pod sampler: which source it takes, what stands when it fails, and when it asks again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.clock import SystemClock
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.model import NODE
from nodeagent.observe import pods as module
from nodeagent.observe.board import Board
from nodeagent.observe.inbox import Inbox
from nodeagent.observe.pods import Follow, PodSampler
from nodeagent.settings import PodSettings
from nodeagent.signals import SignalKey, Unread
from nodeagent.traffic import Pod, PodList, PodSource
from tests.drivers.rig import HandClock, check_leaks, until


def text(*uids: str) -> str:
    """A file of pods with these uids."""
    items = [{"metadata": {"uid": uid, "name": uid, "namespace": "n"}} for uid in uids]
    return json.dumps({"kind": "PodList", "items": items})


class Rig:
    """A sampler in a directory of its own, where neither token nor file exist at first."""

    def __init__(self, tmp_path: Path, source: str = "auto") -> None:
        self.file, self.token = tmp_path / "pods.json", tmp_path / "token"
        self.board, self.inbox = Board(SystemClock()), Inbox()
        self.changes: list[int] = []
        self.settings = PodSettings(source=source, file=str(self.file), kubelet_token_file=str(self.token))
        self.sampler = self.made()

    def made(self) -> PodSampler:
        """The sampler; inside a loop for its event."""
        return PodSampler(
            self.board, self.inbox, SystemClock(), node_name="gpu-a17", settings=self.settings,
            on_change=lambda: self.changes.append(1),
        )

    def value(self, signal: str = "pods") -> Any:
        """What the board says."""
        reading = self.board.readings().get(SignalKey(signal, NODE))
        return None if reading is None else reading.value

    def uids(self) -> list[str] | None:
        """uids on the board; None while there is no list."""
        value = self.value()
        return [pod.uid for pod in value.pods] if isinstance(value, PodList) else None

    def source(self) -> PodSource:
        """Where pods come from."""
        value = self.value("pods.source")
        return value if isinstance(value, PodSource) else PodSource(source="?")

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` beside the sampler; nothing is left open."""

        async def whole() -> None:
            task = asyncio.create_task(self.sampler.run())
            try:
                await asyncio.wait_for(main(), 30)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        check_leaks(whole())


def test_a_file_is_followed(tmp_path: Path) -> None:
    """Missing, written, replaced: each state is on the board at once, and only a difference is a change."""
    rig = Rig(tmp_path, "file")

    async def main() -> None:
        await until(lambda: isinstance(rig.value(), Unread))
        assert rig.value().kind is ErrorKind.ABSENT and rig.source().error_kind is ErrorKind.ABSENT
        rig.file.write_text(text("a"))
        await until(lambda: rig.uids() == ["a"])
        assert rig.source() == PodSource(source="file", origin=str(rig.file))
        (tmp_path / "new").write_text(text("b", "a"))
        (tmp_path / "new").rename(rig.file)
        await until(lambda: rig.uids() == ["b", "a"])
        rig.file.write_text(text("a", "b"))
        await until(lambda: rig.uids() == ["a", "b"])

    rig.run(main)
    assert len(rig.changes) == 2


def test_the_last_list_stands_when_the_file_is_spoiled_or_gone(tmp_path: Path) -> None:
    """The list keeps its pods and its age; the source says what is wrong, and recovers."""
    rig = Rig(tmp_path, "file")
    rig.file.write_text(text("a"))

    async def main() -> None:
        await until(lambda: rig.uids() == ["a"])
        read_at = rig.board.readings()[SignalKey("pods", NODE)].read_at_seconds
        rig.file.write_text("{")
        await until(lambda: rig.source().error_kind is ErrorKind.INVALID)
        rig.file.unlink()
        await until(lambda: rig.source().error_kind is ErrorKind.ABSENT)
        assert rig.uids() == ["a"]
        assert rig.board.readings()[SignalKey("pods", NODE)].read_at_seconds == read_at
        rig.file.write_text(text("a"))
        await until(lambda: rig.source().error_kind is None)

    rig.run(main)
    assert len(rig.changes) == 1


def test_auto_takes_what_comes(tmp_path: Path) -> None:
    """Nothing: no pods and no error. A file that comes later is taken; the kubelet where a token is."""
    rig = Rig(tmp_path)

    async def main() -> None:
        await until(lambda: rig.source().source == "none")
        assert rig.value() is None and not rig.sampler.effective and rig.source().error == ""
        rig.file.write_text(text("a"))
        await until(lambda: rig.uids() == ["a"])
        assert rig.sampler.effective
        rig.token.write_text("")
        rig.sampler.request_now()
        await until(lambda: rig.source().source == "kubelet")
        assert rig.source().origin == "https://gpu-a17:10250"
        assert rig.uids() == ["a"]

    rig.run(main)


def test_a_reload_changes_the_source(tmp_path: Path) -> None:
    """`none` forgets the pods at once; equal settings change nothing."""
    rig = Rig(tmp_path, "file")
    rig.file.write_text(text("a"))

    async def main() -> None:
        await until(lambda: rig.uids() == ["a"])
        rig.sampler.apply(rig.settings)
        rig.sampler.apply(PodSettings(source="none"))
        await until(lambda: rig.source().source == "none")
        assert rig.value() is None

    rig.run(main)


class ScriptedKubelet:
    """Stands for the driver: each read takes the next answer; the last one repeats."""

    answers: list[PodList | DriverError]
    reads: int = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def read(self) -> PodList:
        """The next answer."""
        kind = type(self)
        kind.reads += 1
        answer = kind.answers.pop(0) if len(kind.answers) > 1 else kind.answers[0]
        if isinstance(answer, DriverError):
            raise answer
        return answer


@pytest.fixture
def kubelet(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedKubelet]:
    """A kubelet that answers by script, and gaps of hundredths of a second."""
    kind = type("Kubelet", (ScriptedKubelet,), {"answers": [], "reads": 0})
    monkeypatch.setattr(module, "KubeletPods", kind)
    monkeypatch.setattr(module, "FIRST_GAP_SECONDS", 0.02)
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.02)
    return kind


def pod_list(*uids: str) -> PodList:
    """A list from the kubelet."""
    return PodList(source="kubelet", pods=tuple(Pod(uid=u, namespace="n", name=u) for u in uids))


def test_the_kubelet_is_asked_again_after_devices_changed(
    tmp_path: Path, kubelet: type[ScriptedKubelet]
) -> None:
    """A pod whose address shows some reads after its device is found; without a change nobody asks."""
    kubelet.answers = [pod_list("a"), pod_list("a"), pod_list("a"), pod_list("a", "b")]
    rig = Rig(tmp_path, "kubelet")

    async def main() -> None:
        await until(lambda: rig.uids() == ["a"])
        await asyncio.sleep(0.2)
        assert kubelet.reads == 1
        rig.sampler.devices_changed()
        await until(lambda: rig.uids() == ["a", "b"])

    rig.run(main)
    assert kubelet.reads >= 4 and len(rig.changes) == 2


def test_a_kubelet_that_refuses_is_asked_again_with_growing_gaps(
    tmp_path: Path, kubelet: type[ScriptedKubelet]
) -> None:
    """An API outage makes the kubelet answer 401: unread before the first list, the last list afterwards."""
    refused = DriverError(ErrorKind.DENIED, "kubelet", "read pods", "the kubelet answered 401")
    kubelet.answers = [refused, refused, pod_list("a"), refused]
    rig = Rig(tmp_path, "kubelet")

    async def main() -> None:
        await until(lambda: isinstance(rig.value(), Unread))
        await until(lambda: rig.uids() == ["a"])
        rig.sampler.request_now()
        await until(lambda: rig.source().error_kind is ErrorKind.DENIED)
        assert rig.uids() == ["a"] and "401" in rig.source().error

    rig.run(main)


def test_changes_of_devices_do_not_matter_for_a_file(tmp_path: Path) -> None:
    """A file is watched; no device makes it read."""
    rig = Rig(tmp_path, "file")
    rig.file.write_text(text("a"))

    async def main() -> None:
        await until(lambda: rig.uids() == ["a"])
        sequence = rig.board.readings()[SignalKey("pods", NODE)].sequence
        rig.sampler.devices_changed()
        await asyncio.sleep(0.2)
        assert rig.board.readings()[SignalKey("pods", NODE)].sequence == sequence

    rig.run(main)


def test_a_node_that_never_rests_costs_one_read_a_minute() -> None:
    """Devices that come and go for ever without a new pod: the gap grows to its end and stays there."""
    clock = HandClock()
    follow = Follow(clock)
    reads = 0
    end_seconds = clock.now_seconds + 3600
    while clock.now_seconds < end_seconds:
        follow.begin()
        clock.now_seconds += follow.gap_seconds
        follow.read(changed=False)
        reads += 1

    assert 60 <= reads <= 70
    assert follow.gap_seconds == module.LAST_GAP_SECONDS


def test_calm_and_news_make_it_eager_again() -> None:
    """After two quiet minutes, and after a read that brought something, the gap is short."""
    clock = HandClock()
    follow = Follow(clock)
    gaps = []
    for step in ("begin", "read", "read", "begin", "news", "read", "calm"):
        clock.now_seconds += module.CALM_SECONDS + 1 if step == "calm" else 1
        if step in ("begin", "calm"):
            follow.begin()
        else:
            follow.read(changed=step == "news")
        gaps.append(follow.gap_seconds)

    assert gaps == [0.5, 1.0, 2.0, 2.0, 0.5, 1.0, 0.5]
    assert follow.is_active
    clock.now_seconds += module.FOLLOW_SECONDS
    assert not follow.is_active


class RefusingApi:
    """A watch that is refused when it is told to."""

    def __init__(self) -> None:
        self.refuses = asyncio.Event()

    async def run(self, on_pods: Callable[[PodList], None], _: Callable[[DriverError], None]) -> None:
        """One pod, and then nothing else."""
        on_pods(PodList(source="api", pods=(Pod(uid="from-api", name="p", namespace="n"),)))
        await asyncio.Event().wait()

    async def read_once(self) -> PodList:
        """The same."""
        return PodList(source="api", pods=())

    async def until_denied(self) -> None:
        """As told; once."""
        await self.refuses.wait()
        self.refuses.clear()


def test_auto_takes_the_api_server_first_and_leaves_it_when_refused(tmp_path: Path) -> None:
    """With credentials the watch is the source; refused for good, the next one that is there."""
    rig, api = Rig(tmp_path), RefusingApi()

    async def opened() -> RefusingApi:
        return api

    rig.sampler = PodSampler(
        rig.board, rig.inbox, SystemClock(), node_name="gpu-a17", settings=rig.settings, api=opened,
        has_api=lambda: True,
    )

    async def main() -> None:
        await until(lambda: rig.uids() == ["from-api"])
        api.refuses.set()
        await until(lambda: not api.refuses.is_set())
        assert rig.source().source == "api"  # nothing else is there
        rig.file.write_text(text("from-file"))
        rig.sampler.request_now()
        await until(lambda: rig.uids() == ["from-file"])

    rig.run(main)
    assert rig.source().source == "file"
