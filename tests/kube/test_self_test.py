"""`nodeagent self-test` against the real server: true with the fence, loud without, and without a trace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodeagent.self_test_rows import FENCE, Known, Whoami, refused_attempts
from tests.kube import deployed as deploying
from tests.kube.api import NODES, Api
from tests.kube.deployed import BINDINGS, NAMESPACE, OTHER, OWN, USER, Deployed
from tests.kube.fence_objects import EVENTS, LEASES

NOBODY = Whoami("", "", "")
FENCED = {a.tried for a in refused_attempts(OWN, NOBODY, "nodeagent.io", Known((), False), "")}
READ = (f"{NODES}/{OWN}", f"{NODES}/{OTHER}", LEASES.format(NAMESPACE), EVENTS.format("default"))


class Ran(NamedTuple):
    """What a run of the command gave."""

    code: int
    text: str
    errors: str

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Of its JSON, by what was tried."""
        return {row["tried"]: row for row in json.loads(self.text)["rows"]}


class Command:
    """The command with a configuration of its own."""

    def __init__(self, deployed: Deployed, folder: Path) -> None:
        self.deployed, self._folder = deployed, folder

    def token(self, *, bound: bool = True) -> Path:
        """A kubeconfig of the agent's account."""
        plane = self.deployed.plane
        make = partial(plane.node_token, "nodeagent", OWN) if bound else partial(plane.token, "nodeagent")
        token = make(NAMESPACE)
        return plane.token_kubeconfig(self._folder / "kubeconfig", token)

    def run(self, kubeconfig: Path | str, *words: str, prefix: str = "nodeagent.io", name: str = OWN) -> Ran:
        """Run it in the server's network."""
        config = self._folder / "nodeagent.toml"
        config.write_text(f'[node]\nname = "{name}"\n[cluster]\nkubeconfig = "{kubeconfig}"\n'
                          f'taint_prefix = "{prefix}"\n')
        command = [sys.executable, "-m", "nodeagent", "--config", str(config), "self-test", *words]
        done = subprocess.run([*self.deployed.plane.capsule.prefix(), *command], capture_output=True,
                              text=True, timeout=60, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def command(deployed: Deployed, tmp_path: Path) -> Command:
    """The command, to be run against the deployed fence."""
    return Command(deployed, tmp_path)


@pytest.fixture
def unfenced(deployed: Deployed) -> Iterator[None]:
    """No policy is bound during the test."""
    for binding in ("nodeagent-own-node", "nodeagent-own-slot", "nodeagent-own-events"):
        deployed.plane.admin(Api.delete, f"{BINDINGS}/{binding}").expect()
    try:
        deployed.until_fenced(False)
        yield
    finally:
        deploying.apply(deployed.plane)
        deployed.until_fenced()


def test_the_fence_is_proven_and_nothing_is_touched(command: Command) -> None:
    """Every row is as expected, every write was a dry run, and no object changed."""
    plane = command.deployed.plane
    kubeconfig = command.token()
    before, seen = [plane.admin(Api.get, path).expect() for path in READ], len(plane.audited())

    ran = command.run(kubeconfig, "--json", "--other-node", OTHER)

    assert (ran.code, ran.errors) == (0, "")
    assert all(row["passed"] for row in ran.rows.values())
    assert {tried for tried, row in ran.rows.items() if row["expected"] == FENCE} > FENCED
    sent = [e for e in plane.audited(seen) if e["user"]["username"] == USER]
    assert len(sent) == len(ran.rows) < 25
    for entry in sent:
        resource = entry["objectRef"]["resource"]
        assert "dryRun=All" in entry["requestURI"] or resource.startswith("self"), entry
    after = [plane.admin(Api.get, path).expect() for path in READ]
    assert [_kept(a) for a in after] == [_kept(b) for b in before]


def test_a_person_reads_row_by_row_what_was_tried(command: Command) -> None:
    """Each line says what was tried, expected and what came; the last one is the verdict."""
    ran = command.run(command.token())

    lines = ran.text.splitlines()
    assert ran.code == 0
    assert lines[0].split("  ")[-1] == "CAME"
    [line] = [line for line in lines if "annotate the own node, not-ours.invalid" in line]
    assert line.startswith("ok ")
    assert "refused by the fence: nodeagent may change only annotations under nodeagent.io/" in line
    assert lines[-1].startswith("The fence holds: ")


def test_a_missing_fence_is_loud(command: Command, unfenced: None) -> None:
    """Without the bindings each row that the fence should refuse escapes; exit 1, and what to do."""
    kubeconfig = command.token()

    ran, told = command.run(kubeconfig, "--json"), command.run(kubeconfig)

    assert (ran.code, told.code) == (1, 1)
    assert {tried for tried, row in ran.rows.items() if not row["passed"]} == FENCED
    assert {ran.rows[tried]["came"] for tried in FENCED} == {"allowed"}
    assert told.text.count("ESCAPED") == len(FENCED)
    assert "THE FENCE DOES NOT HOLD" in told.text and "kubectl apply --server-side" in told.text


def test_one_policy_that_is_not_bound_is_enough(command: Command) -> None:
    """Where only the Leases' fence is gone, the one row about them escapes."""
    deployed = command.deployed
    deployed.plane.admin(Api.delete, f"{BINDINGS}/nodeagent-own-slot").expect()
    kubeconfig, tried = command.token(), "take a slot of the brake as another node"
    try:
        def escapes() -> bool:
            rows = command.run(kubeconfig, "--json").rows
            return [name for name, row in rows.items() if not row["passed"]] == [tried]
        deployed.plane.until(escapes)
        assert command.run(kubeconfig).code == 1
    finally:
        deploying.apply(deployed.plane)
        deployed.plane.until(lambda: command.run(kubeconfig).code == 0)


def test_a_token_of_no_node_proves_nothing(command: Command) -> None:
    """Everything is refused, the agent's own work too: exit 1, but nothing escaped."""
    ran = command.run(command.token(bound=False), "--json")

    failed = [row for row in ran.rows.values() if not row["passed"]]
    assert ran.code == 1
    assert failed[0]["came"] == f"{USER}, its token names no node"
    assert len(failed) == 6
    assert all(row["came"].startswith(FENCE) for row in failed[1:])


@pytest.mark.parametrize(("prefix", "name", "word"), [
    ("example.org", OWN, "refused by the fence: nodeagent may change only"),
    ("nodeagent.io", OTHER, f'refused by the fence: nodeagent on node "{OWN}" may not write node'),
    ("nodeagent.io", "no-such-node", "no verdict: the API server answered 404"),
])
def test_a_setting_that_is_not_the_fences_is_said(
    command: Command, prefix: str, name: str, word: str
) -> None:
    """Another domain, another node's name, no Node at all: not proven, with the server's words."""
    ran = command.run(command.token(), prefix=prefix, name=name)

    assert ran.code == 1
    assert word in ran.text
    assert "Not proven" in ran.text and "ESCAPED" not in ran.text


def test_an_administrator_is_not_fenced(command: Command) -> None:
    """With a person's kubeconfig the answer is that this identity can do everything."""
    ran = command.run(command.deployed.plane.kubeconfig)

    assert ran.code == 1
    assert "admin, its token names no node" in ran.text
    assert any(line.startswith("ESCAPED") and "everything" in line for line in ran.text.splitlines())


def test_where_no_server_can_be_asked_that_is_said(command: Command) -> None:
    """No cluster, a kubeconfig that is not there, a token that is refused: one sentence, exit 69 or 77."""
    plane = command.deployed.plane
    bad = plane.token_kubeconfig(plane.folder / "bad.kubeconfig", "nonsense")

    none, absent, refused = (command.run(file) for file in ("", "/no/such/file", bad))

    assert (none.code, none.errors.splitlines()[0]) == (
        69, "nodeagent: no cluster is configured, so nothing was tried: neither the account of a pod nor "
            "cluster.kubeconfig is there")
    assert absent.code == 69 and "/no/such/file" in absent.errors
    assert refused.code == 77 and "401" in refused.errors


def _kept(answer: Any) -> Any:
    """An object, or the items of a list: a list's own version moves with all objects of its kind."""
    return answer.get("items", answer)
