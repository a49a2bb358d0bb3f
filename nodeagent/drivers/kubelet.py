"""The kubelet's own list of pods, over HTTPS on the node itself.

Every answer that is no list is a DriverError with a kind; none is a verdict on the node: while the API
server is away the kubelet cannot check tokens and answers 401. The token goes to the one address that the
configuration names, never after a redirect and never through a proxy.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent import pod_parse
from nodeagent.errors import DriverError, ErrorKind, kind_of
from nodeagent.traffic import PodList

if TYPE_CHECKING:
    import httpx

REFUSED = (401, 403)
"""Answers after which the token is read again, once: it may have been renewed meanwhile."""
OK = 200
MAX_REFUSAL_BYTES = 64 << 10
"""What is read of an answer that is no list."""
MAX_TOKEN_BYTES = 64 << 10
_UNTRUSTED_DETAIL = "set kubelet_ca_file to the CA that signed it, or kubelet_insecure = true"


class KubeletPods:
    """GET /pods at one kubelet."""

    def __init__(
        self, url: str, token_file: str, *, ca_file: str = "", insecure: bool = False,
        prefix: str = "nodeagent.io", deadline_seconds: float = 10.0,
    ) -> None:
        """`url`: https://HOST:PORT; `ca_file`: trusted CA in PEM, empty = the system's;
        `insecure`: trust any certificate; `deadline_seconds`: for each of at most two attempts."""
        self._url = url.rstrip("/") + "/pods"
        self._token_file = token_file
        self._ca_file = ca_file
        self._insecure = insecure
        self._prefix = prefix
        self._deadline_seconds = deadline_seconds

    async def read(self) -> PodList:
        """The pods of this node.

        Raises DriverError: absent (no token, nobody listens), denied (401, 403), timeout, lost (broken
        off), invalid (no list, too large, certificate not trusted).
        """
        # Imported here, in a thread: it costs 19 MiB and 0.1 s that only this source needs.
        await asyncio.to_thread(importlib.import_module, "httpx")
        trust = self._trust()
        status, body = await self._attempt(trust)
        if status in REFUSED:
            status, body = await self._attempt(trust)
        if status != OK:
            kind = ErrorKind.DENIED if status in REFUSED else ErrorKind.INVALID
            raise self._error(kind, f"the kubelet answered {status}{_said(body)}")
        return pod_parse.parse_pod_list(body, "kubelet", self._prefix)

    def _trust(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except ssl.SSLError as error:
            raise self._error(ErrorKind.INVALID, f"{self._ca_file} holds no certificate") from error
        except OSError as error:
            kind = kind_of(error)
            raise self._error(kind, f"{self._ca_file}: {error.strerror or error}") from error
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _token(self) -> str:
        try:
            with Path(self._token_file).open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except OSError as error:
            kind = kind_of(error)
            raise self._error(kind, f"token {self._token_file}: {error.strerror or error}") from error
        if not token or any(not 0x21 <= character <= 0x7E for character in token):
            raise self._error(ErrorKind.INVALID, f"token {self._token_file}: it holds no token")
        return token.decode("ascii")

    async def _attempt(self, trust: ssl.SSLContext) -> tuple[int, bytes]:
        """One request with the token as it is now; status and body."""
        import httpx  # noqa: PLC0415 - see read()

        request_headers = {
            "Authorization": f"Bearer {self._token()}", "Accept": "application/json",
            "Accept-Encoding": "identity", "User-Agent": "nodeagent",
        }
        try:
            async with (
                asyncio.timeout(self._deadline_seconds),
                httpx.AsyncClient(verify=trust, trust_env=False, timeout=self._deadline_seconds) as client,
                client.stream("GET", self._url, headers=request_headers) as answer,
            ):
                return answer.status_code, await self._body(answer)
        except (TimeoutError, httpx.TimeoutException) as error:
            detail = f"no whole answer within {self._deadline_seconds:g} s"
            raise self._error(ErrorKind.TIMEOUT, detail) from error
        except httpx.ConnectError as error:
            raise self._not_connected(error) from error
        except httpx.HTTPError as error:
            raise self._error(ErrorKind.LOST, f"{type(error).__name__}: {error}"[:200]) from error
        except (httpx.InvalidURL, ValueError) as error:
            raise self._error(ErrorKind.INVALID, f"not a URL to ask: {error}"[:200]) from error

    async def _body(self, answer: httpx.Response) -> bytes:
        """The body; the size is watched while it comes, since what announces it may lie."""
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise self._error(ErrorKind.INVALID, "the answer is compressed although that was not asked for")
        limit_bytes = pod_parse.MAX_BYTES if answer.status_code == OK else MAX_REFUSAL_BYTES
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > limit_bytes:
                if answer.status_code != OK:
                    break
                detail = f"the answer is larger than {limit_bytes >> 20} MiB"
                raise self._error(ErrorKind.INVALID, detail)
        return bytes(body)

    def _not_connected(self, error: Exception) -> DriverError:
        causes = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 10:
            causes.append(cause)  # type: ignore[arg-type]  # a cause of an Exception here is one too
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                detail = f"its certificate is not trusted ({cause.verify_message}); {_UNTRUSTED_DETAIL}"
                return self._error(ErrorKind.INVALID, detail)
            if isinstance(cause, ConnectionRefusedError):
                return self._error(ErrorKind.ABSENT, "nobody listens there")
        return self._error(ErrorKind.LOST, f"no connection: {error}"[:200])

    def _error(self, kind: ErrorKind, detail: str) -> DriverError:
        return DriverError(kind, self._url, "read pods", detail)


def _said(body: bytes) -> str:
    """What the kubelet said beside a refusal, on one printable line."""
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    return f": {''.join(c for c in text if c.isprintable())}" if text else ""
