"""The tables of shaping in docs/benchmarks.md: every limit, and the shapers side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.bench.shape_beside import PODS, Shaper
from tests.bench.shape_ends import Echoes
from tests.bench.shape_rates import Held

LABELS = {
    "none": "nothing", "ours": "nodeagent", "cni": "CNI bandwidth plugin, burst 64 KiB",
    "cni-runtime": "CNI bandwidth plugin, burst 512 MiB", "u32": "HTB at the root, one u32 filter a pod",
}


def sections(page: str) -> dict[str, str]:
    """Title -> text of each section of a page, from its title to the next one's."""
    return {text.partition("\n")[0]: f"\n## {text}" for text in re.split(r"\n## ", page)[1:]}


def limits_table(found: Sequence[Held]) -> str:
    """Markdown: a line for each limit and kind of traffic."""
    lines = ["| limit | traffic | offered | class bytes | goodput | first second, of limit and burst |",
             "|---|---|---|---|---|---|"]
    for one in found:
        offered = f"{one.offered_ratio:.2f} x" if one.offered_ratio is not None else "all it can"
        payload = percent(one.payload_ratio) if one.payload_ratio is not None else ""
        cells = (f"{one.limit}bit/s", one.kind.upper(), offered, percent(one.wire_ratio), payload,
                 percent(one.first_ratio))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def percent(ratio: float) -> str:
    """With one digit."""
    return f"{100 * ratio:.1f} %"


def beside_table(found: dict[str, Shaper]) -> str:
    """Markdown: a line for each shaper."""
    lines = ["| shaper | cluster packets/s | core's time of a cluster packet | 20M: first second | 20M: 10 s"
             " | own echo p50/p99 | neighbour's echo p50/p99 |", "|---|---|---|---|---|---|---|"]
    for variant, one in found.items():
        # The inverse of packets in the same time.
        cost = f"{1 / one.packets_ratio:.2f} x" if one.packets_ratio else "held to the limit"
        cells = (LABELS[variant], f"{one.packets_per_second:,.0f}", cost, megabits(one.first_bits),
                 megabits(one.bits_per_second), echo(one.own), echo(one.neighbour))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def megabits(bits_per_second: float) -> str:
    """Mbit/s."""
    return f"{bits_per_second / 1e6:,.1f} Mbit/s"


def echo(echoes: Echoes) -> str:
    """Both quantiles, and what was lost when something was."""
    lost = f", {percent(echoes.lost_ratio)} lost" if echoes.lost_ratio else ""
    return f"{echoes.p50_milliseconds:.1f} / {echoes.p99_milliseconds:.1f} ms{lost}"


LIMITS_TEXT = """
## Limits

{table}

A pod of a shaped node sends over one TCP connection, or UDP at one and a half times the limit (1,400-byte
datagrams, up to 44 handed over at once, thrown away where they arrive). Class bytes are the kernel's count
for the pod's HTB class over ten seconds, three after the first packet; goodput is what the receiver got in
the same time.
The first second begins with the last look at the class before its first packet, a hundredth of a second
early at most. HTB sends while a token is left, so one packet, at most as
long as the queue, goes beyond the burst; the row above allows for it.
"""
BESIDE_TEXT = """
## Shapers side by side

{table}

The same pod limited to 20 Mbit/s in five nodes, measured in one run. Cluster packets: 64-byte frames that
arrive at another node while one core sends as fast as it can; the core's time for each against nothing, from
paired rounds. Then the pod sends to the internet over one TCP connection as fast as it can: payload
received in the first second and in ten seconds after three, and ICMP echoes every 10 ms of the pod itself
and of another pod of the node.

- **nodeagent** has {pods} pods with a class each, and has ended.
- **CNI bandwidth plugin** limits all that the pod sends, so cluster packets get no more than 20 Mbit/s. A
  burst of 512 MiB (2^32-1 bits) is what container runtimes ask for; until it is used up nothing is limited.
- **HTB at the root** has a class and a filter (source and internet address, own preference) for each of
  {pods} pods, the sender's last. Cluster packets walk the whole list.
"""


def limits_section(found: Sequence[Held]) -> str:
    """The section with its words."""
    return LIMITS_TEXT.format(table=limits_table(found))


def beside_section(found: dict[str, Shaper]) -> str:
    """The section with its words."""
    return BESIDE_TEXT.format(table=beside_table(found), pods=PODS)
