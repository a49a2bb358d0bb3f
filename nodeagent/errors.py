"""The two families of errors: the outside world failed, or the operator's input is wrong.

Everything else that is raised is a bug. Drivers raise `DriverError` and nothing else; observe turns
it into an `Unread` value, act into an `Outcome`. `ConfigError` ends the process only at start
(exit 78); at reload the good configuration stays in force.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
from types import MappingProxyType


class ErrorKind(enum.StrEnum):
    """Why an outside world did not answer; the kind, not the text, decides what happens next."""

    ABSENT = "absent"
    """The thing does not exist here: no library, no such feature, no such file, not supported."""
    DENIED = "denied"
    """Permission refused: EPERM, EACCES, a device cgroup, a read-only file system."""
    BUSY = "busy"
    """Held by somebody else just now; a later attempt may succeed."""
    INVALID = "invalid"
    """The answer or the request could not be understood."""
    LOST = "lost"
    """It was there and is gone: a GPU off the bus, a peer that closed, a worker that died."""
    TIMEOUT = "timeout"
    """No answer before the deadline."""


_EVERYWHERE = {
    errno.ENOENT: ErrorKind.ABSENT,
    errno.EACCES: ErrorKind.DENIED,
    errno.EPERM: ErrorKind.DENIED,
}
_NOTHING: Mapping[int, ErrorKind] = MappingProxyType({})


def kind_of(error: OSError, here: Mapping[int, ErrorKind] = _NOTHING) -> ErrorKind:
    """The kind of a failed system call; `here` says what further numbers mean in one outside world."""
    number = error.errno or 0
    return here.get(number) or _EVERYWHERE.get(number, ErrorKind.INVALID)


class DriverError(Exception):
    """One failed operation on one target of one outside world.

    `detail` is a sentence fragment for a person ("NVML returned 15, GPU is lost").
    """

    retry_after_seconds: float = 0.0
    """The least wait that the other side asked for."""

    @property
    def is_stale(self) -> bool:
        """True when what the request was based on is no longer so: read again, then decide anew."""
        return False

    def __init__(self, kind: ErrorKind, target: str, op: str, detail: str = "") -> None:
        self.kind = kind
        self.target = target
        self.op = op
        self.detail = detail
        super().__init__(f"{op} on {target}: {detail or kind.value}")


class ConfigError(Exception):
    """Configuration that cannot be used; each problem names file, key, value and remedy in one line."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))
