"""The table and the plot of nanoseconds a packet by number of pods: marks against a list of rules."""

from __future__ import annotations

from pathlib import Path

from tests.bench.net_packets import NONE, PODS, Packets, Variant

LABELS = {"ours": "nodeagent", "linear": "one MARK rule a pod"}
COLORS = {"ours": "tab:blue", "linear": "tab:red"}


def table(packets: dict[str, Packets]) -> str:
    """Markdown: a line for each backend and kind, a column for each number of pods."""
    lines = [
        f"| ns/packet | {' | '.join(f'{count:,} pods' for count in PODS)} |", f"|---|{'---|' * len(PODS)}",
    ]
    for backend, found in packets.items():
        none = f"{found.nanoseconds(NONE):,.0f}"
        lines.append(f"| {backend}, no marks | {' | '.join([none] * len(PODS))} |")
        for kind, label in LABELS.items():
            cells = (f"{found.nanoseconds(Variant(kind, count)):,.0f}" for count in PODS)
            lines.append(f"| {backend}, {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(packets: dict[str, Packets], path: Path) -> None:
    """Write the picture; needs the `bench` extra."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(packets), figsize=(5 * len(packets), 4), sharey=True, squeeze=False)
    for axis, (backend, found) in zip(axes[0], packets.items(), strict=True):
        axis.axhline(found.nanoseconds(NONE), color="gray", linestyle="--", label="no marks")
        for kind, label in LABELS.items():
            values = [found.nanoseconds(Variant(kind, count)) for count in PODS]
            axis.plot(PODS, values, marker="o", color=COLORS[kind], label=label)
        axis.set(title=backend, xscale="log", xlabel="pods on the node")
        axis.set_xticks(PODS, [f"{count:,}" for count in PODS])
        axis.minorticks_off()
        axis.legend()
    axes[0][0].set_ylim(bottom=0)  # shared, so only once the highest line is drawn
    axes[0][0].set_ylabel("ns per forwarded 64-byte packet")
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
