"""Reads the Xid tables that ship with the package; the only reader of `data/xid.toml` and `sxid.toml`.

It must never look outside the package: what an operator changes of a number is in `[gpu.xid]`.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from nodeagent.decide.xid_table import XidTable, build_xid_table

FILES = ("xid.toml", "sxid.toml")


def load_xid_table() -> XidTable:
    """The table of this version of the package. Raises ValueError when the data is wrong (a bug)."""
    merged: dict[str, Any] = {}
    for name in FILES:
        text = resources.files("nodeagent").joinpath("data", name).read_text(encoding="utf-8")
        merged |= tomllib.loads(text)
    return build_xid_table(merged)
