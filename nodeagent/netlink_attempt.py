"""One attempt by pyroute2 within a deadline: whatever fails in it is a DriverError of its op and target."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Mapping

from pyroute2.netlink.exceptions import NetlinkError

from nodeagent.errors import DriverError, ErrorKind

_KINDS = {
    errno.EPERM: ErrorKind.DENIED, errno.EACCES: ErrorKind.DENIED,
    errno.ENOENT: ErrorKind.ABSENT, errno.ENODEV: ErrorKind.ABSENT, errno.EOPNOTSUPP: ErrorKind.ABSENT,
    errno.EPROTONOSUPPORT: ErrorKind.ABSENT,
    errno.EBUSY: ErrorKind.BUSY, errno.EAGAIN: ErrorKind.BUSY, errno.EINTR: ErrorKind.BUSY,
    errno.ENOBUFS: ErrorKind.BUSY, errno.ENOMEM: ErrorKind.BUSY,
}  # fmt: skip
"""By errno; anything else is invalid."""


@contextlib.asynccontextmanager
async def attempt(
    op: str, target: str, deadline_seconds: float, kinds: Mapping[int, ErrorKind] | None = None
) -> AsyncIterator[None]:
    """Bounds what is done inside; raises DriverError. `kinds`: by a subsystem's own error numbers."""
    known = {**_KINDS, **(kinds or {})}
    try:
        async with asyncio.timeout(deadline_seconds):
            yield
    except TimeoutError as error:
        raise DriverError(ErrorKind.TIMEOUT, target, op, f"no answer after {deadline_seconds:g} s") from error
    except NetlinkError as error:
        kind = known.get(error.code, ErrorKind.INVALID)
        raise DriverError(kind, target, op, str(error.args[-1])) from error
    except OSError as error:
        kind = known.get(error.errno or 0, ErrorKind.INVALID)
        raise DriverError(kind, target, op, error.strerror or str(error)) from error
