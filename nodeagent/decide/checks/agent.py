"""`agent.state`: can the agent itself keep its memory and see what it must see?

The one check for which an unread signal is the fault: an agent that went blind must not look well.
It concerns the agent, so it never asks for a taint.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.decide.check import Check, CheckInput, HoldRule, bad, good, unknown
from nodeagent.model import NODE, Finding, NodeClass
from nodeagent.signals import Reading, SignalKey, StateFileStatus, Unread, WorkerStatus


def judge(given: CheckInput) -> Iterator[Finding]:
    """One finding for the node that names every trouble; the first trouble is the cause.

    A new poll is a new reading of what is in trouble: the others are read more often.
    """
    keys = [SignalKey(signal, NODE) for signal in CHECKS[0].signals]
    readings = {key.signal: reading for key, reading in given.snapshot.readings.items() if key in keys}
    if not readings:
        return
    troubles = list(_troubles(given))
    missing = [key.signal for key in keys if key.signal not in readings]
    if troubles:
        newest = _newest([readings[signal] for signal, _, _ in troubles])
        sentence = "; ".join(sentence for _, _, sentence in troubles)
        yield bad(NODE, newest, sentence, value=troubles[0][1], cause=troubles[0][1])
    elif missing:
        waiting = f"{', '.join(missing)} not read yet"
        yield unknown(NODE, _newest(list(readings.values())), waiting)
    else:
        yield good(NODE, _newest(list(readings.values())), value="well")


def _newest(readings: list[Reading]) -> Reading:
    return max(readings, key=lambda reading: reading.read_at_seconds)


def _troubles(given: CheckInput) -> Iterator[tuple[str, str, str]]:
    """(signal, cause, sentence) of everything that hinders the agent."""
    state_file = given.value("state_file", NODE)
    if isinstance(state_file, Unread):
        yield "state_file", "state file", f"the state file's condition is unknown: {state_file.reason}"
    elif isinstance(state_file, StateFileStatus) and not state_file.writable:
        said = state_file.detail or "no detail"
        yield "state_file", "state file", f"the state file cannot be written: {said}"
    kernel_log = given.value("kernel_log", NODE)
    if isinstance(kernel_log, Unread) and given.gpu_wanted:
        sentence = f"the kernel log cannot be read, Xids may be missed: {kernel_log.reason}"
        yield "kernel_log", "kernel log", sentence
    worker = given.value("worker.host", NODE)
    if isinstance(worker, WorkerStatus) and worker.state == "stuck":
        yield "worker.host", "host reads", f"{worker.pending_call or 'a host read'} does not return"


CHECKS = (
    Check(
        id="agent.state",
        title="The agent's own condition",
        family="agent",
        signals=("state_file", "kernel_log", "worker.host"),
        source="the state file, the kernel log reader and the worker that reads the host",
        node_class=NodeClass.CHECK,
        judge=judge,
        hold=HoldRule(bad_polls=2, of_polls=3),
    ),
)
