"""The daemon that dies by SIGKILL at one op on the kernel, as if the power had gone at that instant.

`python -m tests.netns.dying_daemon N MODULE.NAME=VALUE ... -- ARGUMENTS`: before the op number N, from 0; the
op before it was carried out, and nobody was told what it did.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from nodeagent.act.network import KernelMarks
from nodeagent.act.shaping import KernelShape
from nodeagent.model import Op
from tests.netns.quick_daemon import run


def die_at(number: int) -> None:
    """Have this process die before an op."""
    passed = 0

    def counted(perform: Callable[[Any, Op], Awaitable[str]]) -> Callable[[Any, Op], Awaitable[str]]:
        async def perform_or_die(self: object, op: Op) -> str:
            nonlocal passed
            if passed == number:
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1
            return await perform(self, op)

        return perform_or_die

    for kind in (KernelMarks, KernelShape):
        kind.perform = counted(kind.perform)  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    die_at(int(sys.argv[1]))
    sys.exit(run(sys.argv[2:]))
