"""Silences as an operator gives them: by the command, through the socket, over a restart."""

from __future__ import annotations

import os
import pwd

from tests.agent import Agent, is_raised, prompt
from tests.e2e.conftest import MakeAgent

FAULTY = 2


def _broken(make_agent: MakeAgent) -> tuple[Agent, str]:
    agent = make_agent(sections={**prompt("xid"), "gpu": {"auto_release": False}})
    agent.start()
    address = agent.pci(FAULTY)
    agent.kernel_log.xid(address, 48)
    agent.wait_until(lambda s: bool(s["taint"]["wanted"]), "the fault asks for a taint")
    return agent, address


def test_a_silence_is_shown_until_it_ends(make_agent: MakeAgent) -> None:
    """The fault stays in sight with who silenced it and why; a restart forgets nothing; its end is heard."""
    agent, address = _broken(make_agent)
    me = f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"

    code, said = agent.cli(
        "silence", "xid", "--target", str(FAULTY), "--for", "2h", "--reason", "swap booked")
    assert code == 0, said
    assert f"by {me}" in said
    assert "nodeagent unsilence 1" in said
    agent.stop()
    agent.start()
    status = agent.wait_until(lambda s: is_raised(s, "xid", address), "the fault is known after the restart")
    assert status["verdict"]["state"] == "critical"
    assert (status["taint"]["wanted"], status["taint"]["silenced"][0]["silences"]) == ([], [1])
    assert [(s["target"], s["owner"], s["reason"]) for s in status["silences"]] == [
        (address, me, "swap booked")]
    screen = agent.cli("status")[1]
    assert f"1: xid on GPU {FAULTY}" in screen
    assert "none: silence holds back" in screen
    assert "swap booked" in agent.cli("silence", "--list")[1]
    assert f"silenced by {me}" in agent.cli("history", "--json")[1]
    assert b"nodeagent_silences{" in agent.raw("/metrics")

    assert agent.cli("unsilence", "1")[0] == 0
    assert agent.status()["taint"]["wanted"][0]["value"] == "xid"
    assert agent.status()["silences"] == []


def test_what_cannot_be_silenced_is_refused_in_one_sentence(make_agent: MakeAgent) -> None:
    """Each names what is wrong and what would be right, and nothing is silenced."""
    agent, _ = _broken(make_agent)
    reason = ("--reason", "x")
    for arguments, words in (
        (("silence", "xidd", "--for", "1h", *reason), "no check 'xidd'"),
        (("silence", "xid", "--target", "9", "--for", "1h", *reason), "no target '9'"),
        (("silence", "xid", "--for", "8d", *reason), "at most 7d"),
        (("silence", "xid", "--for", "1h", "--reason", "  "), "--reason"),
        (("silence", "xid", *reason), "--for is missing"),
        (("silence",), "CHECK is missing"),
        (("silence", "xid", "--list"), "--list takes no check"),
        (("unsilence", "7"), "no silence 7 stands"),
    ):
        code, said = agent.cli(*arguments)
        assert code != 0, arguments
        assert words in said, said
        assert len(said.strip().splitlines()) == 1, said

    assert agent.status()["silences"] == []


ODD_BODIES: tuple[object, ...] = (
    {}, {"checks": []}, {"checks": ["xid"]}, {"checks": ["xid"], "for_seconds": "1h", "reason": "x"},
    {"checks": ["xid"], "for_seconds": 0, "reason": "x"},
    {"checks": ["xid"], "for_seconds": 1e9, "reason": "x"},
    {"checks": ["xid"], "for_seconds": 60, "reason": "a\u001b[31m"},
    {"checks": ["xid"], "for_seconds": 60, "reason": "x", "target": "a\nb"},
    {"checks": ["xid"] * 17, "for_seconds": 60, "reason": "x"},
    {"checks": ["xid"], "for_seconds": 60, "reason": "x", "user_id": 0},
    {"numbers": [1]}, [], None, "xid",
)


def test_no_odd_request_silences_anything(agent: Agent) -> None:
    """One sentence back each time, and nothing stands."""
    for body in ODD_BODIES:
        answer = agent.post("/v1/silence", body)
        assert set(answer) == {"schema", "error"}, (body, answer)

    assert agent.status()["silences"] == []
