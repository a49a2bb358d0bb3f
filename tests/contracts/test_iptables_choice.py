"""Which backend: a wrong choice is silent, so each sign of the host's own choice is tried (A11)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.drivers.iptables import choice
from nodeagent.drivers.iptables.programs import Backend, run
from nodeagent.errors import DriverError, ErrorKind
from tests import processes
from tests.netns.world import BACKENDS, World

HINT = ("-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
CANARY = ("-t", "mangle", "-N", "KUBE-KUBELET-CANARY")
RULE = ("-t", "filter", "-A", "FORWARD", "-j", "ACCEPT")

SIGNS: list[tuple[str, list[tuple[str, tuple[str, ...]]], str]] = [
    ("nothing at all", [], "nft"),
    ("the hint in legacy", [("iptables-legacy", HINT), ("iptables-nft", RULE)], "legacy"),
    ("the hint in nft", [("iptables-nft", HINT), ("iptables-legacy", RULE)], "nft"),
    ("the canary of IPv6 only", [("ip6tables-legacy", CANARY), ("iptables-nft", RULE)], "legacy"),
    ("both, one of them old", [("iptables-legacy", HINT), ("iptables-nft", HINT)], "nft"),
    ("rules in legacy", [("iptables-legacy", RULE)], "legacy"),
    ("rules in nft", [("iptables-nft", RULE)], "nft"),
    ("more rules in legacy", [("iptables-legacy", RULE), ("ip6tables-legacy", RULE), ("iptables-nft", RULE)],
     "legacy"),
    ("as many in both", [("iptables-legacy", RULE), ("iptables-nft", RULE)], "nft"),
    ("the hint in filter is none", [("iptables-legacy", ("-N", "KUBE-IPTABLES-HINT"))], "nft"),
]  # fmt: skip


@pytest.mark.parametrize(("signs", "expected"), [row[1:] for row in SIGNS], ids=[row[0] for row in SIGNS])
def test_the_backend_is_that_of_the_host(
    world: World, signs: list[tuple[str, tuple[str, ...]]], expected: str
) -> None:
    """The kubelet's chain first, then who holds rules, then nft; the look itself changes nothing."""
    for program, words in signs:
        world.command("node", program, *words)
    before = world.dump()
    chosen: Backend = world.inside("node", choice.choose_backend)
    assert chosen.name == expected
    assert chosen.reason
    assert world.dump() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_path_in_the_settings_decides(world: World, backend: str) -> None:
    """Whatever the host shows."""
    world.neighbours("nft" if backend == "legacy" else "legacy")
    chosen = world.inside("node", choice.choose_backend, f"/usr/sbin/iptables-{backend}")
    assert (chosen.name, chosen.prefix[6]) == (backend, f"/usr/sbin/ip6tables-{backend}")


def script(path: Path, body: str) -> str:
    """A program of this name that does `body`."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


VERSIONS = [("v1.8.9 (nf_tables)", "nft"), ("v1.8.9 (legacy)", "legacy"), ("v1.6.1", "legacy")]


@pytest.mark.parametrize(("version", "expected"), VERSIONS)
def test_a_program_says_what_it_is(tmp_path: Path, version: str, expected: str) -> None:
    """Old ones, which know one backend only, name none."""
    path = script(tmp_path / "iptables", f"echo 'iptables {version}'")
    chosen = asyncio.run(choice.choose_backend(path))
    assert (chosen.name, chosen.prefix) == (expected, {4: path, 6: str(tmp_path / "ip6tables")})


FAILURES = [
    ("", ErrorKind.ABSENT, "No such file"),
    ("echo 'Permission denied (you must be root)' >&2; exit 4", ErrorKind.DENIED, "exit 4"),
    ("echo 'Another app is currently holding the xtables lock' >&2; exit 4", ErrorKind.BUSY, "lock"),
    ("echo 'Bad rule (does a matching rule exist in that chain?)' >&2; exit 1", ErrorKind.BUSY, "Bad"),
    ("echo 'Set x does not exist.' >&2; exit 2", ErrorKind.ABSENT, "Set x"),
    ("echo 'line 2: RULE_APPEND failed (Invalid argument)' >&2; exit 4", ErrorKind.INVALID, "line 2"),
    ("echo '*mangle'; echo ':FORWARD ACCEPT [0:0]'", ErrorKind.INVALID, "has no end"),
    ("echo 'once upon a time'", ErrorKind.INVALID, "outside any table"),
]


@pytest.mark.parametrize(("save", "kind", "words"), FAILURES)
def test_what_a_program_says_is_an_error_of_its_kind(
    tmp_path: Path, save: str, kind: ErrorKind, words: str
) -> None:
    """Half an answer, no answer and each refusal are told apart."""
    path = script(tmp_path / "iptables", "echo 'iptables v1.8.9 (nf_tables)'")
    if save:
        script(tmp_path / "iptables-save", save)
    writer = choice.open_rules(asyncio.run(choice.choose_backend(path)))
    with pytest.raises(DriverError) as failed:
        asyncio.run(writer.read(4))
    assert failed.value.kind is kind
    assert words in failed.value.detail


def test_a_path_that_is_no_program_is_absent() -> None:
    """The setting's value is named."""
    with pytest.raises(DriverError) as failed:
        asyncio.run(choice.choose_backend("/nowhere/iptables"))
    assert (failed.value.kind, failed.value.target) == (ErrorKind.ABSENT, "/nowhere/iptables")


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    """The deadline passes, the process goes."""
    path = script(tmp_path / "slow", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    with pytest.raises(DriverError) as failed:
        asyncio.run(run([path], "read rules", deadline_seconds=1))
    assert failed.value.kind is ErrorKind.TIMEOUT
    assert processes.state(int((tmp_path / "pid").read_text())) == ""


def test_python_iptables_is_loaded_for_legacy_alone() -> None:
    """Its libraries cost memory and keep state that no other host needs."""
    code = (
        "import sys; from nodeagent.drivers.iptables import Backend, open_rules\n"
        "def loaded(name):\n"
        "    open_rules(Backend(name=name, reason='', prefix={}))\n"
        "    return 'iptc' in sys.modules\n"
        "print(loaded('nft'), loaded('legacy'))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "False True\n"
