"""`nodeagent run`: hands over to the daemon."""

from __future__ import annotations

import argparse


def run(args: argparse.Namespace) -> int:
    """Run the agent until it is told to stop; returns its exit code."""
    from nodeagent import daemon  # noqa: PLC0415  every other command starts without it

    return daemon.main(args.config, args.socket)
