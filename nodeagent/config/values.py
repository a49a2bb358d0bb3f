"""One raw TOML value becomes one typed value, or says in words what would have been right.

Pure: it reads no file and knows no section. It never lets a value through that the type in
`settings.py` does not allow, and never shows a value so that it could drive a terminal.
"""

from __future__ import annotations

import difflib
import enum
import ipaddress
import json
import math
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, get_args, get_origin

import msgspec

from nodeagent.quantity import is_rate
from nodeagent.settings import ListenAddress, Prefixes, Quantity, SocketPath

SOCKET_PATH_BYTES = 107
"""Longest path a unix socket can have on Linux: sun_path less its closing zero."""
_SHOWN_CHARACTERS = 80
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")


class KnownLimit(Protocol):
    """What config must know of a check's limit; `decide.check.Limit` has it."""

    @property
    def name(self) -> str:
        """Key under `[checks."ID"]`."""
    @property
    def unit(self) -> str:
        """Unit in words."""
    @property
    def default(self) -> Any:
        """Its type is the type the configured value must have."""


class Wrong(ValueError):
    """A value of the wrong type or range; the text says what would be right."""


def convert(value: Any, hint: Any) -> Any:
    """Return `value` as the annotated type `hint` of a settings field.

    Raises Wrong with what would be right: "a number from 1 to 3600".
    """
    if isinstance(value, bool) and get_origin(hint) is Literal:
        value = "true" if value else "false"
    try:
        converted = msgspec.convert(value, type=hint)
    except msgspec.ValidationError:
        raise Wrong(right(hint)) from None
    unfit = (
        (isinstance(converted, float) and not math.isfinite(converted))
        or (hint == SocketPath and not socket_path_fits(converted))
        or (hint == ListenAddress and converted != "" and parse_listen(converted) is None)
        or (hint == Quantity and converted != "" and not is_rate(converted))
        or (hint == Prefixes and not all(is_prefix(text) for text in converted))
    )
    if unfit:
        raise Wrong(right(hint))
    return converted


def right(hint: Any) -> str:
    """What a value of the annotated type `hint` looks like, in words."""
    members = [member for member in get_args(hint) if member is not type(None)]
    if type(None) in get_args(hint):
        return right(members[0])
    if get_origin(hint) is Literal:
        return one_of([json.dumps(member) for member in members])
    meta = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, msgspec.Meta)), msgspec.Meta())
    if meta.description:
        return meta.description
    base = getattr(hint, "__origin__", hint)
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return one_of([json.dumps(member.value) for member in base])
    noun = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}[base]
    return noun if meta.ge is None else f"{noun} from {meta.ge:g} to {meta.le:g}"


def convert_limit(value: Any, limit: KnownLimit) -> Any:
    """Return `value` as the type of the limit's default: int, float, bool, str or tuple of str.

    Numbers must be finite and not negative, percentages at most 100. Raises Wrong.
    """
    default = limit.default
    percent = limit.name.endswith("_percent") or limit.unit in ("%", "percent")
    wanted = _limit_words(default, limit.unit, percent)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise Wrong(wanted)
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = _as_float(value, wanted)
    if type(value) is not type(default):
        raise Wrong(wanted)
    if isinstance(value, int | float) and not isinstance(value, bool):
        highest = 100 if percent else math.inf
        if not (0 <= value <= highest) or math.isinf(value):
            raise Wrong(wanted)
    return value


def _as_float(value: int, wanted: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Wrong(wanted) from None


def _limit_words(default: Any, unit: str, percent: bool) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, tuple):
        return "a list of texts in quotes"
    if isinstance(default, str):
        return "text in quotes"
    noun = "a whole number" if isinstance(default, int) else "a number"
    if percent:
        return f"{noun} from 0 to 100, in percent"
    return f"{noun} from 0 on" + (f", in {unit}" if unit else "")


def is_xid_number(text: str) -> bool:
    """Say whether `text` is an Xid number as it stands in the kernel log."""
    return re.fullmatch(r"[1-9][0-9]{0,4}", text, re.ASCII) is not None


def socket_path_fits(path: str) -> bool:
    """Say whether the kernel can bind a unix socket at `path`."""
    return len(path.encode("utf-8", "surrogateescape")) <= SOCKET_PATH_BYTES


def parse_listen(address: str) -> tuple[str, int] | None:
    """Return (host, port) of `127.0.0.1:9469`, `[::1]:9469` or `localhost:9469`; None when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        return None
    if host.startswith("[") and host.endswith("]"):
        return (host[1:-1], int(port)) if _is_address(socket.AF_INET6, host[1:-1]) else None
    if re.fullmatch(r"[0-9.]+", host) and not _is_address(socket.AF_INET, host):
        return None
    return (host, int(port)) if _HOST_NAME.match(host) else None


def is_prefix(text: str) -> bool:
    """Say whether `text` is a prefix of IPv4 or IPv6 without host bits: `10.0.0.0/8`."""
    try:
        return "/" in text and bool(ipaddress.ip_network(text))
    except ValueError:
        return False


def _is_address(family: socket.AddressFamily, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except (OSError, ValueError):
        return False
    return True


def one_of(words: Sequence[str]) -> str:
    """Join words as people do: `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def show(value: Any) -> str:
    """Return `value` as it would stand in a TOML file, on one line, printable, at most 80 characters."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        return "a value too large to show"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def show_key(*parts: str) -> str:
    """Return a dotted key with quotes where TOML needs them: `checks."disk.full".class`."""
    return ".".join(part if _BARE_KEY.match(part) else show(part) for part in parts)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word nearest to `name`, and all of them when none is close."""
    candidates = sorted(known)
    if not candidates:
        return "none is known here"
    name = name[:_SHOWN_CHARACTERS]
    close = difflib.get_close_matches(name, candidates, 1, 0.6)
    if close:
        return f"did you mean {close[0]}?"
    best = difflib.get_close_matches(name, candidates, 1, 0.0)
    return f"the nearest is {best[0]}; known are {', '.join(candidates)}"


def wrong(value: Any, hint: Any) -> str:
    """Return what would be right where `value` does not fit the annotated type, else ""."""
    try:
        convert(value, hint)
    except Wrong as error:
        return str(error)
    return ""
