"""What each path of the socket answers, from a `Surface` that the daemon provides.

Knows neither sockets nor other stages. Whatever a peer sends becomes an answer with one sentence;
only a bug in a surface method raises.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from nodeagent.signals import GpuCommand, NodeCommand, SilenceCommand

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
ERROR_SCHEMA = "nodeagent/error/v1"
HISTORY_SECONDS = 366 * 86400
"""Longest window that `history` may be asked for."""
PAUSE_SECONDS = 7 * 86400
"""Longest pause of writes that may be asked for."""
RELEASE_SECONDS = 7 * 86400
"""Longest release of NVML that may be asked for."""
SILENCE_SECONDS = 7 * 86400
"""Longest silence that may be asked for."""
MAX_POD_CHARACTERS = 400


_Handler = Callable[["Surface", "Request"], Awaitable["Answer"]]


class BadRequest(Exception):
    """The peer asked for something that cannot be; the text is one sentence for it."""


class CommandAnswer(Struct, frozen=True, kw_only=True):
    """What became of a command."""

    ok: bool
    sentence: str
    """What happens now, or why nothing does."""


class Surface(Protocol):
    """What the daemon shows; the methods that are not async must return at once."""

    def status_json(self) -> bytes:
        """Body of GET /v1/status, schema nodeagent/status/v1."""

    def checks_json(self) -> bytes:
        """Body of GET /v1/checks, schema nodeagent/check/v1."""

    def history_json(self, since_seconds: float | None) -> bytes:
        """Body of GET /v1/history, schema nodeagent/history/v1; None: all that is kept."""

    def metrics_text(self) -> tuple[bytes, str]:
        """Exposition page and its content type."""

    def healthy(self) -> bool:
        """True while the cycle ticks."""

    def ready(self) -> bool:
        """True after the first full cycle."""

    async def check_now(self, ids: tuple[str, ...]) -> bytes:
        """Read everything now and answer as `checks_json`; () = all. Raises BadRequest."""

    async def command(self, command: GpuCommand) -> CommandAnswer:
        """Take a GPU command in. Raises BadRequest."""

    async def node_command(self, command: NodeCommand) -> CommandAnswer:
        """Take a command on writes to the Node in. Raises BadRequest."""
    def silences_json(self) -> bytes:
        """Body of GET /v1/silences, schema nodeagent/silence/v1."""

    async def silence(self, asked: tuple[SilenceCommand, ...]) -> CommandAnswer:
        """Begin silences, or end them where each command says which. Raises BadRequest."""

    async def net_top(self) -> bytes:
        """Read counters now; schema nodeagent/net-top/v1. Raises BadRequest."""

    async def net_show(self, pod: str) -> bytes:
        """Read now; schema nodeagent/net-show/v1. Raises BadRequest for an unknown pod."""

    async def net_diff(self) -> bytes:
        """Read now; schema nodeagent/net-diff/v1. Raises BadRequest."""


class Request(Struct, frozen=True, kw_only=True):
    """One request, complete."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    user_id: int | None = None
    """uid of the socket's peer, None on TCP."""


class Answer(Struct, frozen=True, kw_only=True):
    """One answer, complete."""

    status: int
    body: bytes
    content_type: str = JSON
    allow: str = ""
    """For 405: the method that is right."""


class CheckBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/check."""

    ids: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=256)] = ()


class ReleaseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/gpu/release; without for_seconds the configured time counts."""

    for_seconds: Annotated[float, Meta(ge=1, le=RELEASE_SECONDS)] | None = None


class ResumeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/gpu/resume: nothing."""


class RepairedBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/gpu/repaired."""

    target: Annotated[str, Meta(min_length=1, max_length=128)]
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class PauseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/pause."""

    for_seconds: Annotated[float, Meta(ge=1, le=PAUSE_SECONDS)]
    reason: Annotated[str, Meta(min_length=1, max_length=500)]
class SilenceBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/silence."""

    checks: Annotated[tuple[Annotated[str, Meta(max_length=128)], ...], Meta(min_length=1, max_length=16)]
    target: Annotated[str, Meta(max_length=128)] = ""
    """"" means every target of the checks."""
    for_seconds: Annotated[float, Meta(ge=1, le=SILENCE_SECONDS)]
    reason: Annotated[str, Meta(min_length=1, max_length=200)]


class UnsilenceBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/unsilence."""

    numbers: Annotated[tuple[int, ...], Meta(min_length=1, max_length=64)]


def error(status: int, sentence: str, allow: str = "") -> Answer:
    """An answer that carries one sentence."""
    body = msgspec.json.encode({"schema": ERROR_SCHEMA, "error": sentence})
    return Answer(status=status, body=body, allow=allow)


async def respond(surface: Surface, request: Request, *, probes_only: bool) -> Answer:
    """Answer one request; `probes_only` is the TCP side, which knows only metrics, health and ready."""
    routes = _PROBES if probes_only else _ALL
    route = routes.get(request.path)
    if route is None:
        return error(404, f"no such path here; known are {', '.join(sorted(routes))}")
    method, handler = route
    if request.method != method and not (request.method == "HEAD" and method == "GET"):
        return error(405, f"{request.path} takes {method} only", allow=method)
    try:
        return await handler(surface, request)
    except BadRequest as problem:
        return error(400, str(problem))


# --------------------------------------------------------------------------- handlers


async def _status(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=surface.status_json())


async def _checks(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=surface.checks_json())


async def _history(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=surface.history_json(_since_seconds(request.query)))


async def _metrics(surface: Surface, request: Request) -> Answer:
    page, content_type = surface.metrics_text()
    return Answer(status=200, body=page, content_type=content_type)


async def _health(surface: Surface, request: Request) -> Answer:
    return _probe(surface.healthy(), "the cycle does not tick")


async def _ready(surface: Surface, request: Request) -> Answer:
    return _probe(surface.ready(), "the first full cycle is not over")


def _probe(good: bool, reason: str) -> Answer:
    text = "ok\n" if good else f"{reason}\n"
    return Answer(status=200 if good else 503, body=text.encode(), content_type=TEXT)


async def _check_now(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=await surface.check_now(_decoded(request.body, CheckBody).ids))


async def _release(surface: Surface, request: Request) -> Answer:
    body = _decoded(request.body, ReleaseBody)
    command = GpuCommand(verb="release", for_seconds=body.for_seconds, user_id=request.user_id)
    return await _commanded(surface, command)


async def _resume(surface: Surface, request: Request) -> Answer:
    _decoded(request.body, ResumeBody)
    return await _commanded(surface, GpuCommand(verb="resume", user_id=request.user_id))


async def _repaired(surface: Surface, request: Request) -> Answer:
    body = _decoded(request.body, RepairedBody)
    if any(not text.isprintable() or not text.strip() for text in (body.target, body.reason)):
        raise BadRequest("target and reason must be printable text on one line, and neither may be blank")
    command = GpuCommand(
        verb="repaired", target=body.target, reason=body.reason, user_id=request.user_id
    )
    return await _commanded(surface, command)


async def _silences(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=surface.silences_json())


async def _silence(surface: Surface, request: Request) -> Answer:
    body = _decoded(request.body, SilenceBody)
    if not body.target.isprintable() or not body.reason.isprintable() or not body.reason.strip():
        raise BadRequest("target and reason must be printable text on one line, and the reason not blank")
    asked = tuple(
        SilenceCommand(
            check=check, target=body.target, for_seconds=body.for_seconds, reason=body.reason.strip(),
            user_id=request.user_id,
        )
        for check in dict.fromkeys(body.checks)
    )
    return _told("silence-command", await surface.silence(asked))


async def _unsilence(surface: Surface, request: Request) -> Answer:
    numbers = dict.fromkeys(_decoded(request.body, UnsilenceBody).numbers)
    asked = tuple(SilenceCommand(ends=number, user_id=request.user_id) for number in numbers)
    return _told("silence-command", await surface.silence(asked))


async def _commanded(surface: Surface, command: GpuCommand) -> Answer:
    return _told("gpu", await surface.command(command))


def _told(noun: str, answer: CommandAnswer) -> Answer:
    said = {"schema": f"nodeagent/{noun}/v1", "ok": answer.ok, "sentence": answer.sentence}
    return Answer(status=200 if answer.ok else 409, body=msgspec.json.encode(said))


async def _pause(surface: Surface, request: Request) -> Answer:
    body = _decoded(request.body, PauseBody)
    if not body.reason.isprintable() or not body.reason.strip():
        raise BadRequest("reason must be printable text on one line, and not blank")
    command = NodeCommand(
        verb="pause", for_seconds=body.for_seconds, reason=body.reason, user_id=request.user_id)
    return _told("node-command", await surface.node_command(command))


def _node(verb: str) -> _Handler:
    async def handler(surface: Surface, request: Request) -> Answer:
        _decoded(request.body, ResumeBody)
        command = NodeCommand(verb=verb, user_id=request.user_id)
        return _told("node-command", await surface.node_command(command))

    return handler


async def _net_top(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=await surface.net_top())


async def _net_show(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=await surface.net_show(_pod(request.query)))


async def _net_diff(surface: Surface, request: Request) -> Answer:
    return Answer(status=200, body=await surface.net_diff())


def _pod(query: str) -> str:
    """The one parameter of show. Raises BadRequest."""
    try:
        parameters = parse_qsl(query, keep_blank_values=True, max_num_fields=4, errors="strict")
    except ValueError:
        parameters = []
    if [name for name, _ in parameters] != ["pod"] or not parameters[0][1].isprintable():
        raise BadRequest("show takes only pod=NAMESPACE/NAME or pod=UID")
    return parameters[0][1][:MAX_POD_CHARACTERS]


_Body = TypeVar(
    "_Body", CheckBody, ReleaseBody, ResumeBody, RepairedBody, PauseBody, SilenceBody, UnsilenceBody
)


def _decoded(body: bytes, kind: type[_Body]) -> _Body:
    """The body as its noun; an empty body is an empty object. Raises BadRequest."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise BadRequest(f"the body is not what this path takes: {problem}") from None


def _since_seconds(query: str) -> float | None:
    """The one parameter of history. Raises BadRequest."""
    remedy = f"history takes only since_seconds=N, a number of seconds from 0 to {HISTORY_SECONDS}"
    try:
        parameters = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=4)
        seconds = [float(value) for name, value in parameters if name == "since_seconds"]
    except ValueError:
        raise BadRequest(remedy) from None
    if len(parameters) > 1 or len(parameters) != len(seconds):
        raise BadRequest(remedy)
    if any(not math.isfinite(value) or not 0 <= value <= HISTORY_SECONDS for value in seconds):
        raise BadRequest(remedy)
    return seconds[0] if seconds else None


_PROBES: dict[str, tuple[str, _Handler]] = {
    "/metrics": ("GET", _metrics),
    "/health": ("GET", _health),
    "/ready": ("GET", _ready),
}
_ALL: dict[str, tuple[str, _Handler]] = _PROBES | {
    "/v1/status": ("GET", _status),
    "/v1/checks": ("GET", _checks),
    "/v1/history": ("GET", _history),
    "/v1/check": ("POST", _check_now),
    "/v1/net/top": ("GET", _net_top),
    "/v1/net/show": ("GET", _net_show),
    "/v1/net/diff": ("GET", _net_diff),
    "/v1/silences": ("GET", _silences),
    "/v1/silence": ("POST", _silence),
    "/v1/unsilence": ("POST", _unsilence),
    "/v1/gpu/release": ("POST", _release),
    "/v1/gpu/resume": ("POST", _resume),
    "/v1/gpu/repaired": ("POST", _repaired),
    "/v1/pause": ("POST", _pause),
    "/v1/unpause": ("POST", _node("unpause")),
    "/v1/node/release": ("POST", _node("release")),
    "/v1/node/resume": ("POST", _node("resume")),
}
