"""The daemon with other periods than its own, so that a test need not wait for a minute to pass.

`python -m tests.netns.quick_daemon MODULE.NAME=VALUE ... -- ARGUMENTS`: constants of the package by name.
"""

from __future__ import annotations

import ast
import importlib
import sys


def patch(words: list[str]) -> None:
    """Set each constant; one that does not exist is an error, so that a test cannot patch nothing."""
    for word in words:
        path, _, value = word.partition("=")
        module, _, name = path.rpartition(".")
        target = importlib.import_module(f"nodeagent.{module}")
        getattr(target, name)
        known = ast.literal_eval(value)
        setattr(target, name, float(known) if isinstance(known, int) else known)


def run(words: list[str]) -> int:
    """Be the daemon: `MODULE.NAME=VALUE ... -- ARGUMENTS`; its exit status."""
    at = words.index("--")
    patch(words[:at])
    sys.argv[1:] = words[at + 1 :]
    from nodeagent.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
