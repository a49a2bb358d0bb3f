"""The node's state for a person at a terminal: verdict first, trouble next, the next command last.

Works from the JSON reports alone, so it shows the same on the node and from a saved file. One
screen of 24 lines is enough for a broken node unless `verbose` asks for everything. Colour never
carries a meaning that a word does not.
"""

from __future__ import annotations

from nodeagent.model import State
from nodeagent.report.render_cluster import api_lines, taint_verb
from nodeagent.report.render_net import render_network
from nodeagent.report.render_silences import held_line, silence_lines
from nodeagent.report.rows import SHORTEST_SENTENCE, UNCUT, check_table, trouble_lines
from nodeagent.report.schema import (
    CheckReport,
    CheckStatus,
    GpuStatus,
    HistoryReport,
    PendingCall,
    ReleaseStatus,
    StatusReport,
    TransitionStatus,
    UnreadValue,
    in_force,
)
from nodeagent.report.text import (
    STATE_WORDS,
    Span,
    clean,
    clock,
    counted,
    cut,
    duration,
    padded,
    paint,
    short_label,
)

__all__ = ["clean", "duration", "headline", "render_check", "render_history", "render_status"]

SCREEN_LINES = 23
"""A terminal of 24 lines without its prompt."""
FEWEST_ROWS = 4
LABEL_WIDTH = 10
STALE_CYCLE_SECONDS = 60.0
WAITING_SHOWN_SECONDS = 2.0
"""Every call is in flight for a moment; a person is told when it takes longer than this."""


def render_status(
    report: StatusReport, *, color: bool = False, width: int = 100, verbose: bool = False
) -> str:
    """Text of `nodeagent status`; `width` in columns, at least 40 are used."""
    width = max(40, width)
    above = [*_head(report, width), _labelled("GPUs", _gpus_text(report.gpus), width, verbose)]
    below = [_labelled(label, text, width, verbose) for label, text in _sections(report, verbose)]
    room = max(FEWEST_ROWS, SCREEN_LINES - len(above) - len(below))
    rows = trouble_lines(_rows_worth_a_line(report, verbose), width=width, room=room, verbose=verbose)
    return _joined([*above, *rows, *below], color)


def render_check(report: CheckReport, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """Text of `nodeagent check`; equal rows are folded unless `verbose`; the last line has the exit code."""
    width = max(60, width)
    lines = check_table(report.checks, width=width, verbose=verbose)
    counts = ", ".join(f"{n} {_count_word(state)}" for state, n in report.counts.items()) or "no rows"
    total = f"{counts} in {report.duration_seconds:.1f} s"
    ending = f"exit {report.exit_code}"
    return _joined([*lines, [Span(total.ljust(width - len(ending) - 2) + "  " + ending)]], color)


def render_history(
    report: HistoryReport, *, color: bool = False, width: int = 100, verbose: bool = False
) -> str:
    """Text of `nodeagent history`: one transition a line, oldest first."""
    if not report.transitions:
        span = "" if report.since_seconds is None else f" in the last {duration(report.since_seconds)}"
        return f"{clean(report.node)}: no change of state remembered{span}\n"
    head = ["TIME (UTC)", "AGE", "CHECK", "TARGET", "CHANGE", "WHY"]
    table = padded([head, *(_transition_cells(item, verbose) for item in report.transitions)])
    colors = ["", *(STATE_WORDS[item.state] for item in report.transitions)]
    lines = []
    for (*facts, change, sentence), color_name in zip(table, colors, strict=True):
        before = "  ".join(facts) + "  "
        room = UNCUT if verbose else width - len(before) - len(change) - 2
        told = cut(sentence, room) if room >= SHORTEST_SENTENCE else ""
        lines.append([Span(before), Span(change, color_name), Span(f"  {told}")])
    earlier = sum(not item.this_boot for item in report.transitions)
    if earlier:
        lines.insert(1 + earlier, [Span("-- reboot --", "dim")])
    return _joined(lines, color)


def _transition_cells(item: TransitionStatus, verbose: bool) -> list[str]:
    label = item.target_label if verbose else short_label(item.target_label)
    change = f"{STATE_WORDS[item.previous]} -> {STATE_WORDS[item.state]}"
    return [
        f"{item.at[:10]} {item.at[11:19]}",
        duration(item.age_seconds),
        item.check,
        label,
        item.event or change,
        item.sentence,
    ]


def headline(report: StatusReport) -> str:
    """One line for `systemctl status`: `CRITICAL for 4 min; GPUs: 7 of 8 healthy, 1 faulty`."""
    return cut(clean(f"{_state_word(report)}{_standing(report)}; GPUs: {_gpus_text(report.gpus)}"), 200)


# --------------------------------------------------------------------------- status


def _joined(lines: list[list[Span]], color: bool) -> str:
    return "".join(paint(spans, color) + "\n" for spans in lines)


def _rows_worth_a_line(report: StatusReport, verbose: bool) -> list[CheckStatus]:
    """In the first seconds, what was never read yet is told once, not row by row."""
    if verbose or report.phase != "starting":
        return report.rows
    return [row for row in report.rows if not _awaited(row)]


def _awaited(row: CheckStatus) -> bool:
    return in_force(row) is State.UNKNOWN and row.read_age_seconds is None


def _label(text: str) -> Span:
    return Span(text.ljust(LABEL_WIDTH))


def _labelled(label: str, text: str, width: int, verbose: bool) -> list[Span]:
    room = UNCUT if verbose or label in ("Next", "") else width - LABEL_WIDTH
    if label == "Taint" and len(text) > room:
        text = text.partition(" (")[0]
    shown = cut(text, room)
    return [_label(label), Span(shown)]


def _state_word(report: StatusReport) -> str:
    state = report.verdict.state
    if state is State.OK:
        return "OK"
    return "STARTING" if report.phase == "starting" and state is State.UNKNOWN else STATE_WORDS[state]


def _standing(report: StatusReport) -> str:
    age = report.verdict.age_seconds
    return "" if age is None else f" for {duration(age)}"


def _head(report: StatusReport, width: int) -> list[list[Span]]:
    word = _state_word(report)
    since = report.verdict.since
    absolute = ""
    if since is not None and report.verdict.state is not State.OK:
        absolute = f", since {clock(since, report.verdict.age_seconds)}"
    left = f"{cut(report.node, width // 2)}  "
    rest = f"{_standing(report)}{absolute}"
    agent = f"nodeagent {report.version}, cycle {duration(report.cycle.age_seconds)} ago"
    lines = [[Span(left), Span(word, word), Span(rest)]]
    used = len(left) + len(word) + len(rest)
    if used + 2 + len(agent) <= width:
        lines[0].append(Span(agent.rjust(width - used), "dim"))
    else:
        lines.append([_label("Agent"), Span(cut(agent, width - LABEL_WIDTH))])
    if report.cycle.age_seconds > STALE_CYCLE_SECONDS:
        late = f"no cycle for {duration(report.cycle.age_seconds)}: all below is that old"
        lines.append([_label("STALE"), Span(late)])
    return lines


def _gpus_text(gpus: GpuStatus) -> str:
    if gpus.wanted is None:
        return "not known yet"
    if not gpus.wanted:
        return "none on this node"
    judged = gpus.healthy + gpus.faulty + gpus.unread
    total = max(judged, gpus.expected or 0)
    if gpus.released and gpus.release is not None:
        return _released_text(gpus.release, gpus.faulty, total)
    if not total:
        why = gpus.seen.unread if isinstance(gpus.seen, UnreadValue) else "none seen"
        return f"not known: {why}"
    parts = [f"{gpus.healthy} of {total} healthy"]
    parts += [f"{gpus.faulty} faulty"] * bool(gpus.faulty) + [f"{gpus.unread} not read"] * bool(gpus.unread)
    if isinstance(gpus.seen, int) and gpus.expected is not None and gpus.seen != gpus.expected:
        parts.append(f"{gpus.seen} seen, {gpus.expected} expected")
    return ", ".join(parts)


def _released_text(release: ReleaseStatus, faulty: int, total: int) -> str:
    """Who let go of the GPUs and until when. What stands is faulty; of the others nothing is known."""
    standing = f"{faulty} of {total} faulty, " if faulty else ""
    who = "an operator" if release.by_operator else "the agent"
    left = release.left_seconds
    ends = "until nodeagent gpu resume" if left is None else f"{duration(left)} left"
    age = duration(release.age_seconds)
    return f"{standing}not read: released by {who} {age} ago, {ends}, {release.reason}"


def _sections(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    """Label and text of every line under the rows, in order."""
    lines: list[tuple[str, str]] = [("Checks", _counts_text(report))]
    lines += _incident_lines(report, verbose) + _evidence_lines(report, verbose)
    lines += [("Waiting", _waiting(call)) for call in report.pending_calls if verbose or _is_slow(call)]
    lines += _worker_lines(report, verbose)
    lines += [("Taint", text) for text in _taints(report)]
    lines += [("Silence", text) for text in silence_lines(report.silences, verbose=verbose)]
    lines += _network_lines(report, verbose) + api_lines(report.api, verbose)
    lines += _log_lines(report, verbose) + _upkeep_lines(report, verbose)
    return lines + [("Next" if i == 0 else "", command) for i, command in enumerate(report.next)]


def _counts_text(report: StatusReport) -> str:
    counts = [f"{n} {_count_word(state)}" for state, n in report.counts.items()]
    why = " (muted: not judged while another fault stands)" if State.MUTED in report.counts else ""
    if report.phase == "starting" and any(_awaited(row) for row in report.rows):
        why = ", first readings are on their way"
    return (", ".join(counts) or "none judged yet") + why


def _count_word(state: str) -> str:
    return "not applicable" if state == State.NOT_APPLICABLE else state


def _incident_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    lines = []
    for item in report.incidents:
        others = [member for member in item.members if member != item.root]
        where = f" on {item.target_label}" if item.target_label != item.target else ""
        if others or verbose:
            told = f"{item.root}{where} {duration(item.age_seconds)} ago explains "
            lines.append(("Incident", told + (", ".join(others) or "nothing else")))
    return lines if verbose else lines[:3]


def _evidence_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    standing = [x for x in report.xids if x.cleared is None and x.text]
    shown = report.xids if verbose else sorted(standing, key=lambda x: -x.node_class.rank)[:1]
    lines = []
    for xid in shown:
        times = f" x{xid.count}" if xid.count > 1 else ""
        ended = "" if xid.cleared is None else f", cleared by {xid.cleared_by or 'age'}"
        told = f"{xid.kind} {xid.number}{times}, {xid.node_class.value}, {duration(xid.age_seconds)}"
        lines.append(("Evidence", f"{told} ago{ended}: {xid.text or xid.detail or 'no text'}"))
    return lines


def _is_slow(call: PendingCall) -> bool:
    return call.for_seconds >= WAITING_SHOWN_SECONDS or call.state == "stuck"


def _waiting(call: PendingCall) -> str:
    worker = {"nvml": "NVML"}.get(call.worker, call.worker)
    stuck = ", stuck" if call.state == "stuck" else ""
    return f"{worker}: {call.call}, {duration(call.for_seconds)}{stuck}"


def _worker_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    lines = []
    for worker in report.workers:
        failing = bool(worker.error_cause) or worker.state == "backoff"
        if not verbose and not (failing and worker.state != "stuck"):
            continue
        why = f": {worker.error_cause or 'failed'}, {worker.error_detail}".rstrip(", ") if failing else ""
        pid = "" if worker.pid is None else f", pid {worker.pid}"
        lines.append(("Worker", f"{worker.kind} {worker.state}{pid}, replaced {worker.restarts} times{why}"))
    return lines


def _taints(report: StatusReport) -> list[str]:
    held = "dry run" if report.taint.dry_run else report.taint.held
    aside = f" ({held})" if held else ""
    lines = [
        f"{taint_verb(report.api, taint) if not aside else 'would set'} "
        f"{taint.key}={taint.value}:{taint.effect}{aside}"
        for taint in report.taint.wanted
    ]
    lines += [f"none: {held_line(one)}" for one in report.taint.silenced]
    return lines or [f"none wanted{aside}"]


def _network_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    """Nothing where there are no pods to mark: most of what is off was never wanted."""
    network = report.network
    if network is None or not network.pods_source or (network.mode == "off" and not verbose):
        return []
    return [("Network", render_network(network))]


def _log_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    log = report.kernel_log
    if log is None:
        return [("Kernel", "log not opened yet")] if report.phase == "running" or verbose else []
    if log.unread is not None:
        return [("Kernel", f"log not read: {log.unread}")]
    parts = [f"{counted(log.lost_records, 'log record')} lost unread"] if log.lost_records else []
    parts += [f"{counted(log.refused_records, 'forged record')} refused"] if log.refused_records else []
    parts += ["still reading back to boot"] * (not log.backfilled)
    if verbose or not parts:
        parts = [
            f"log read {duration(log.age_seconds)} ago, {counted(log.records or 0, 'record')}",
            *(parts or ["none lost"]),
        ]
    return [("Kernel", ", ".join(parts))]


def _upkeep_lines(report: StatusReport, verbose: bool) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    state = report.state_file
    if state is not None and state.unread is not None:
        lines.append(("State", f"not known: {state.unread}"))
    elif state is not None and not state.writable:
        lines.append(("State", f"NOT SAVED, a restart forgets holds and history: {state.detail}"))
    elif state is not None and verbose:
        lines.append(("State", "saved"))
    if state is not None and state.set_aside:
        lines.append(("State", f"an unusable file was kept as {state.set_aside}"))
    if report.config.reload_error:
        lines.append(("Config", f"REJECTED, the one before stays in force: {report.config.reload_error}"))
    elif verbose:
        lines.append(("Config", ", ".join(report.config.files) or "built-in defaults, no file"))
    if report.inbox_dropped:
        lines.append(("Inbox", f"{counted(report.inbox_dropped, 'event')} dropped, more came than fits"))
    return lines
