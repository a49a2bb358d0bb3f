"""What an answer that is no success means: its kind, and what tells one refusal from another.

Two answers 429 and two answers 422 ask for different things; the fields here tell them apart, the text never
has to be read for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from nodeagent.errors import DriverError, ErrorKind

MAX_RETRY_AFTER_SECONDS = 600.0
MAX_SHOWN_CHARACTERS = 300
FLOW_SCHEMA_HEADER = "x-kubernetes-pf-flowschema-uid"
PRIORITY_LEVEL_HEADER = "x-kubernetes-pf-prioritylevel-uid"
TOO_MANY_REQUESTS, UNPROCESSABLE = 429, 422
UNAUTHORIZED, FORBIDDEN = 401, 403

_KINDS = {
    401: ErrorKind.DENIED, 403: ErrorKind.DENIED, 404: ErrorKind.ABSENT, 408: ErrorKind.TIMEOUT,
    409: ErrorKind.BUSY, 410: ErrorKind.LOST, 429: ErrorKind.BUSY, 504: ErrorKind.TIMEOUT,
}  # fmt: skip


class _Cause(Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(Struct):
    causes: list[_Cause] | None = None
    retryAfterSeconds: float | None = None


class Status(Struct):
    """A v1.Status, as far as it is of use."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


class ApiRefusal(DriverError):
    """The server answered, and it was no success.

    `kind`: denied (401, 403), absent (404), busy (409, 429, most 5xx, 422 of a failed test: read again),
    invalid (other 4xx: a fault of ours), lost (410: too old), timeout (408, 504).
    """

    def __init__(self, kind: ErrorKind, target: str, op: str, detail: str, *, status: int, reason: str = "",
                 causes: tuple[str, ...] = (), retry_after_seconds: float = 0.0, priority_level: str = "",
                 ) -> None:
        """`causes`: the `reason` of each cause ("DisruptionBudget"); `retry_after_seconds`: a floor."""
        super().__init__(kind, target, op, detail)
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        self.priority_level = priority_level

    @property
    def overloaded(self) -> bool:
        """True for a 429 by which the server protects itself; a disruption budget's 429 is none."""
        return self.status == TOO_MANY_REQUESTS and "DisruptionBudget" not in self.causes

    @property
    def is_stale(self) -> bool:
        """True when what the request was based on is no longer so: read again, then decide anew."""
        return self.status == 409 or (self.status == UNPROCESSABLE and not self.causes)


def refusal(
    target: str, op: str, status: int, headers: Mapping[str, str], body: bytes
) -> ApiRefusal:
    """The error that an answer without success is."""
    return _refusal((target, op), status, parse_status(body), headers, body)


def in_stream(target: str, op: str, data: bytes) -> ApiRefusal:
    """The error that an ERROR event of a watch is; its code stands in the object."""
    said = parse_status(data)
    return _refusal((target, op), said.code or 500, said, {}, data)


def parse_status(data: bytes) -> Status:
    """The v1.Status in an answer; an empty one for whatever is none."""
    try:
        return msgspec.json.decode(data, type=Status)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Status()


def _refusal(
    asked: tuple[str, str], status: int, said: Status, headers: Mapping[str, str], body: bytes
) -> ApiRefusal:
    details = said.details or _Details()
    causes = tuple(cause.reason for cause in details.causes or ())
    text = shown(said.message if said.message is not None else body[:MAX_SHOWN_CHARACTERS])
    waits = (retry_after_seconds(headers.get("retry-after", "")), details.retryAfterSeconds or 0.0)
    return ApiRefusal(
        _kind(status, causes), *asked, f"the API server answered {status}" + (f": {text}" if text else ""),
        status=status, reason=said.reason or "", causes=causes,
        retry_after_seconds=min(MAX_RETRY_AFTER_SECONDS, max(0.0, *waits)),
        priority_level=shown(headers.get(PRIORITY_LEVEL_HEADER, "")),
    )


def _kind(status: int, causes: tuple[str, ...]) -> ErrorKind:
    if status == UNPROCESSABLE and not causes:
        return ErrorKind.BUSY
    return _KINDS.get(status) or (ErrorKind.BUSY if status >= 500 else ErrorKind.INVALID)


def retry_after_seconds(text: str) -> float:
    """The header in seconds; 0 for its form as a date, which needs a clock that both share."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(MAX_RETRY_AFTER_SECONDS, seconds) if math.isfinite(seconds) and seconds > 0 else 0.0


def shown(text: str | bytes) -> str:
    """What a server said, on one printable line of bounded length."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    line = "".join(c for c in " ".join(text[: 2 * MAX_SHOWN_CHARACTERS].split()) if c.isprintable())
    return line if len(line) <= MAX_SHOWN_CHARACTERS else line[:MAX_SHOWN_CHARACTERS] + "..."
