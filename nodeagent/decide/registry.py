"""Finds every check by scanning the package, so that adding one touches no list."""

from __future__ import annotations

import importlib
import pkgutil

from nodeagent.decide import checks as package
from nodeagent.decide.check import Check


def registry() -> dict[str, Check]:
    """Every check by id: each module in `decide/checks/` contributes its `CHECKS` tuple.

    Raises ValueError when two checks share an id (a bug found at start, not at 3 a.m.).
    """
    found: dict[str, Check] = {}
    for module_info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{package.__name__}.{module_info.name}")
        for check in module.CHECKS:
            if check.id in found:
                raise ValueError(f"check id {check.id} is declared twice")
            found[check.id] = check
    return dict(sorted(found.items()))
