"""The shipped message catalog against the event catalogue it is generated from."""

from pathlib import Path

from nodeagent.report.events import CATALOGUE, catalog_text

SHIPPED = Path(__file__).resolve().parents[2] / "systemd" / "nodeagent.catalog"


def test_shipped_catalog_is_fresh() -> None:
    """systemd/nodeagent.catalog is what the generator writes; `make catalog` cures a difference."""
    assert SHIPPED.read_text(encoding="utf-8") == catalog_text()


def test_catalog_has_one_entry_for_each_event() -> None:
    """Each MESSAGE_ID heads exactly one entry."""
    heads = [line[3:] for line in catalog_text().splitlines() if line.startswith("-- ")]

    assert heads == [kind.message_id for kind in CATALOGUE.values()]
