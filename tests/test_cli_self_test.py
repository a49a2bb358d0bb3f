"""`nodeagent self-test` without a server: its table, its verdicts, and what it says where no cluster is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.cli import main
from nodeagent.cli_self_test import render
from nodeagent.self_test import Row, SelfTest

OK = Row(tried="annotate", expected="refused by the fence", came="refused by the fence: no", passed=True)
FAILED = Row(tried="label", expected="refused by the fence", came="no answer: gone\x1b[31m", passed=False)
ESCAPED = Row(tried="cordon", expected="refused by the fence", came="allowed", passed=False, escaped=True)


@pytest.mark.parametrize(("rows", "states", "verdict"), [
    ((OK, OK), ["ok", "ok"], "The fence holds: 2 of 2"),
    ((OK, FAILED), ["ok", "FAILED"], "Not proven: only 1 of 2"),
    ((OK, FAILED, ESCAPED), ["ok", "FAILED", "ESCAPED"], "THE FENCE DOES NOT HOLD: only 1 of 3"),
])
def test_the_verdict_follows_the_worst_row(rows: tuple[Row, ...], states: list[str], verdict: str) -> None:
    """One row that escaped outranks all others; one without an answer proves nothing."""
    done = SelfTest(node="a", user="b", rows=rows)
    table, _, end = render(done).partition("\n\n")

    assert [line.split()[0] for line in table.splitlines()[1:]] == states
    assert end.startswith(verdict)
    assert done.passed == (set(states) == {"ok"})


def test_a_servers_words_cannot_drive_the_terminal() -> None:
    """What came is printed without control characters."""
    assert "\x1b" not in render(SelfTest(node="a", user="b", rows=(FAILED,)))


@pytest.mark.parametrize("words", [["self-test"], ["self-test", "--json"]])
def test_without_a_cluster_one_sentence_says_so(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was tried, what to do, and exit 69."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = tmp_path / "nodeagent.toml"
    config.write_text("")

    code = main(["--config", str(config), *words])

    said = capsys.readouterr()
    assert code == 69
    assert said.err.startswith("nodeagent: no cluster is configured, so nothing was tried: ")
    assert "[cluster] kubeconfig" in said.err
    assert not said.out or json.loads(said.out)["exit_code"] == 69
