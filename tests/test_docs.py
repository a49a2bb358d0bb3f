"""The generated pages say what the code says, and every word a user can set is in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from nodeagent import settings
from nodeagent.decide.registry import registry
from nodeagent.docs_generate import PAGES, ROOT, attribute_docs, config_markdown

NOUNS = [
    settings.NodeSettings,
    settings.GpuSettings,
    settings.CheckSettings,
    settings.ClusterSettings,
    settings.StatusSettings,
]


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_a_generated_page_is_fresh(name: str, page: Callable[[], str]) -> None:
    """What stands in docs/ is what `make docs` would write now."""
    assert (ROOT / name).read_text(encoding="utf-8") == page().rstrip("\n") + "\n", "run: make docs"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_setting_has_a_docstring(noun: type[Struct]) -> None:
    """A field without a word about it cannot be documented."""
    assert set(attribute_docs(noun)) == set(noun.__struct_fields__)


@pytest.mark.parametrize("noun", [noun for noun in NOUNS if noun is not settings.CheckSettings])
def test_every_setting_is_on_the_page(noun: type[Struct]) -> None:
    """Each key has its row or its section."""
    page = config_markdown()

    for key in noun.__struct_fields__:
        assert f"| `{key}` |" in page or f".{key}]`" in page


def test_every_limit_is_on_the_page() -> None:
    """Each limit of each check has its row."""
    page = PAGES["docs/checks.md"]()

    for check in registry().values():
        for limit in check.limits:
            assert f"| `{limit.name}` |" in page.partition(f"## `{check.id}`")[2].partition("\n## ")[0]


def test_a_field_without_docstring_is_noticed() -> None:
    """The search for docstrings can fail."""
    assert set(attribute_docs(_Half)) == {"said"}


class _Half(Struct):
    unsaid: int = 0
    said: int = 0
    """A word."""
