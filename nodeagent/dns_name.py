"""What Kubernetes takes for a DNS label and a DNS name. Pure; it says yes or no and mends nothing."""

from __future__ import annotations

import re

MAX_NAME_CHARACTERS = 253
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_PATTERN = re.compile(_LABEL)
_NAME_PATTERN = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def is_dns_label(text: str) -> bool:
    """Say whether `text` can be the name of a namespace."""
    return _LABEL_PATTERN.fullmatch(text) is not None


def is_dns_name(text: str) -> bool:
    """Say whether `text` can be the name of a pod: labels with dots between them."""
    return len(text) <= MAX_NAME_CHARACTERS and _NAME_PATTERN.fullmatch(text) is not None
