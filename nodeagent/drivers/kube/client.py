"""Single requests to the API server: one attempt each, with a deadline, within the budget.

Each request has a connection of its own, so none outlives a renewed certificate or sticks to one of several
servers. It is never redirected and never goes through a proxy: the token reaches the named server only.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from nodeagent.drivers.kube import answers
from nodeagent.drivers.kube.budget import Budget
from nodeagent.drivers.kube.credentials import Credentials, Trust
from nodeagent.errors import DriverError, ErrorKind

if TYPE_CHECKING:
    import httpx

DEADLINE_SECONDS = 30.0
"""Above the 15 s for which an overloaded server queues a request before it refuses it."""
CONNECT_SECONDS = 10.0
MAX_BODY_BYTES = 8 << 20
"""Longest answer; the server's own limit of an object is 1.5 MiB in its shortest form."""
MAX_REFUSAL_BYTES = 64 << 10
USER_AGENT = "nodeagent"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_METHODS = {"get": "GET", "watch": "GET", "patch": "PATCH", "create": "POST", "delete": "DELETE"}


def path_of(*words: str) -> str:
    """A path of the API; each word is quoted: `path_of("api", "v1", "nodes", name)`."""
    return "/" + "/".join(quote(word, safe="") for word in words)


class _Asked(NamedTuple):
    verb: str
    target: str
    data: bytes
    headers: dict[str, str]


class KubeClient:
    """One identity at one server."""

    def __init__(self, credentials: Callable[[], Credentials], budget: Budget) -> None:
        """`credentials`: read again for each request; may raise DriverError."""
        self._credentials = credentials
        self.budget = budget
        self._trust: Trust | None = None
        self._context: ssl.SSLContext | None = None
        self._sent_token = ""

    async def get(self, path: str, query: Mapping[str, str] | None = None, **options: Any) -> bytes:
        """One object as JSON. With `{"resourceVersion": "0"}` from the server's memory."""
        return await self.request("get", path, query=query, **options)

    async def patch(self, path: str, body: Any, content_type: str, **options: Any) -> bytes:
        """Change one object; the answer is the object as it is now."""
        return await self.request("patch", path, body=body, content_type=content_type, **options)

    async def create(self, path: str, body: Any, **options: Any) -> bytes:
        """Create one object, or ask for an action like an eviction."""
        return await self.request("create", path, body=body, **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> bytes:
        """Delete one object; `body` may hold preconditions."""
        return await self.request("delete", path, body=body, **options)

    async def request(
        self, verb: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        content_type: str = "application/json", as_user: str = "", deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        """One request and its whole answer; refused credentials are tried again once if they were renewed.

        `as_user`: impersonated. Raises ApiRefusal for an answer without success; DriverError: busy (the
        budget is spent), absent (no credentials, nobody listens), timeout, lost (broken off), invalid.
        """
        headers = {"Impersonate-User": as_user} if as_user else {}
        data = b"" if body is None else msgspec.json.encode(body)
        if data:
            headers["Content-Type"] = content_type
        try:
            async with (
                asyncio.timeout(deadline_seconds),
                self.open(verb, path, query=query, data=data, headers=headers) as answer,
            ):
                return await self._body(answer, verb, path)
        except TimeoutError as error:
            detail = f"no whole answer within {deadline_seconds:g} s"
            raise DriverError(ErrorKind.TIMEOUT, self._url(path), verb, detail) from error

    @contextlib.asynccontextmanager
    async def open(
        self, verb: str, path: str, *, query: Mapping[str, str] | None = None, data: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """A successful answer whose body is still to be read, by `pieces`; the deadline is the caller's.

        Raises as `request` does.
        """
        # Imported in a thread: it takes 0.1 s, and only nodes with a cluster pay it.
        await asyncio.to_thread(importlib.import_module, "httpx")
        asked = _Asked(verb, path + ("?" + urlencode(query) if query else ""), data, dict(headers or {}))
        async with contextlib.AsyncExitStack() as stack:
            yield await self._answer(stack, asked)

    async def _answer(self, stack: contextlib.AsyncExitStack, asked: _Asked) -> httpx.Response:
        sent = self._credentials()
        try:
            return await self._attempt(stack, sent, asked)
        except answers.ApiRefusal as error:
            denied = error.status in (answers.UNAUTHORIZED, answers.FORBIDDEN)
            if not denied or not self._renewed(sent):
                raise
        return await self._attempt(stack, self._credentials(), asked)

    def _renewed(self, sent: Credentials) -> bool:
        now = self._credentials()
        return (now, now.token(), now.trust()) != (sent, self._sent_token, self._trust)

    async def _attempt(
        self, stack: contextlib.AsyncExitStack, credentials: Credentials, asked: _Asked
    ) -> httpx.Response:
        import httpx  # noqa: PLC0415 - see open()

        url, verb = credentials.server + asked.target, asked.verb
        context = self._context_of(credentials)
        self._sent_token = credentials.token()
        self._spend(verb, url)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        if self._sent_token:
            headers["Authorization"] = f"Bearer {self._sent_token}"
        extensions = {"sni_hostname": credentials.server_name} if credentials.server_name else {}
        # Reads have no limit of their own: the caller's deadline is over all of them.
        timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
        with _translated(url, verb):
            client = httpx.AsyncClient(verify=context, trust_env=False, timeout=timeout)
            await stack.enter_async_context(client)
            answer = await stack.enter_async_context(client.stream(
                _METHODS[verb], url, content=asked.data or None, headers={**headers, **asked.headers},
                extensions=extensions,
            ))
        await self._judge(answer, verb, url)
        return answer

    def _context_of(self, credentials: Credentials) -> ssl.SSLContext:
        trust = credentials.trust()
        if self._context is None or trust != self._trust:
            self._context, self._trust = trust.context(), trust
        return self._context

    def _spend(self, verb: str, url: str) -> None:
        wait_seconds = self.budget.take(verb)
        if wait_seconds > 0:
            detail = f"not sent: the budget of {verb} is spent, the next one fits in {wait_seconds:.0f} s"
            raise answers.ApiRefusal(
                ErrorKind.BUSY, url, verb, detail, status=0, retry_after_seconds=wait_seconds)

    async def _judge(self, answer: httpx.Response, verb: str, url: str) -> None:
        """Return for a success, raise what the answer is otherwise."""
        said = answer.headers
        level = answers.shown(said.get(answers.PRIORITY_LEVEL_HEADER, ""))
        self.budget.served_at(level, answers.shown(said.get(answers.FLOW_SCHEMA_HEADER, "")))
        if said.get("content-encoding", "identity") != "identity":
            detail = "the answer is compressed although that was not asked for"
            raise DriverError(ErrorKind.INVALID, url, verb, detail)
        if 200 <= answer.status_code < 300:
            return
        body = await _read(answer, verb, MAX_REFUSAL_BYTES)
        error = answers.refusal(url, verb, answer.status_code, said, body[:MAX_REFUSAL_BYTES])
        if error.overloaded:
            self.budget.throttled(error.priority_level)
        raise error

    async def _body(self, answer: httpx.Response, verb: str, path: str) -> bytes:
        body = await _read(answer, verb, MAX_BODY_BYTES)
        if len(body) > MAX_BODY_BYTES:
            detail = f"the answer is larger than {MAX_BODY_BYTES >> 20} MiB"
            raise DriverError(ErrorKind.INVALID, self._url(path), verb, detail)
        return body

    def _url(self, path: str) -> str:
        with contextlib.suppress(DriverError):
            return self._credentials().server + path
        return path


@contextlib.contextmanager
def _translated(url: str, verb: str) -> Iterator[None]:
    """What httpx raises becomes a DriverError; a deadline of the caller's passes."""
    import httpx  # noqa: PLC0415 - see KubeClient.open()

    try:
        yield
    except httpx.TimeoutException as error:
        detail = f"no connection within {CONNECT_SECONDS:g} s"
        raise DriverError(ErrorKind.TIMEOUT, url, verb, detail) from error
    except httpx.ConnectError as error:
        kind, detail = _not_connected(error)
        raise DriverError(kind, url, verb, detail) from error
    except httpx.HTTPError as error:
        detail = answers.shown(f"{type(error).__name__}: {error}")
        raise DriverError(ErrorKind.LOST, url, verb, detail) from error
    except (httpx.InvalidURL, ValueError) as error:
        detail = answers.shown(f"not a URL to ask: {error}")
        raise DriverError(ErrorKind.INVALID, url, verb, detail) from error


async def pieces(answer: httpx.Response, verb: str) -> AsyncIterator[bytes]:
    """The body as it comes. Raises DriverError(lost) when it breaks off."""
    with _translated(str(answer.url), verb):
        async for piece in answer.aiter_raw():
            yield piece


async def _read(answer: httpx.Response, verb: str, limit_bytes: int) -> bytes:
    """The body, or somewhat more than the limit of it."""
    body = bytearray()
    async for piece in pieces(answer, verb):
        body += piece
        if len(body) > limit_bytes:
            break
    return bytes(body)


def _not_connected(error: BaseException) -> tuple[ErrorKind, str]:
    cause: BaseException | None = error
    for _ in range(10):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ErrorKind.INVALID, f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ConnectionRefusedError):
            return ErrorKind.ABSENT, "nobody listens there"
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    return ErrorKind.LOST, answers.shown(f"no connection: {error}")
