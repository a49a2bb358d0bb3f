"""`nodeagent explain`: from the package alone, and with what a daemon sees now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli import main
from nodeagent.cli_page import load_page, parse_page
from nodeagent.cli_record import xid_record
from nodeagent.config import Loaded
from nodeagent.decide.registry import registry
from nodeagent.report.server import StatusServer
from nodeagent.settings import Settings
from nodeagent.xid_data import load_xid_table
from tests.report import scenes
from tests.report.serving import SceneSurface, running

NOBODY = "/nonexistent/none.sock"


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a daemon on a node with standing Xids."""
    found = tmp_path_factory.mktemp("e") / "a.sock"
    with running(StatusServer(SceneSurface(scenes.two_xids()), socket_path=str(found))):
        yield found


@pytest.mark.parametrize("check_id", sorted(registry()))
def test_every_check_is_explained_without_a_daemon(check_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Record, page and first commands come from the package; what is seen now is said to be unknown."""
    assert main(["--socket", NOBODY, "explain", check_id]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith(f"{check_id}: {registry()[check_id].title}\n")
    for part in (
        "\nClass ",
        "\nRaised ",
        "\nCleared ",
        "\nSource ",
        "\nMeaning\n",
        "\nImpact\n",
        "\nFirst commands\n",
    ):
        assert part in printed
    assert "Now        not known: the agent does not answer (no such socket)" in printed


@pytest.mark.parametrize("what", ["xid 79", "79", "xid79", "XID 79", "xid.79", "xid-79", "  79 "])
def test_an_xid_is_found_however_it_is_written(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The number is what counts."""
    assert main(["--socket", NOBODY, "explain", *what.split(" ")]) == 0

    assert capsys.readouterr().out.startswith(f"Xid 79: {load_xid_table().xids[79].meaning}\n")


@pytest.mark.parametrize("what", ["sxid 12028", "12028", "sxid.12028"])
def test_an_sxid_is_found_however_it_is_written(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Five digits mean a switch."""
    assert main(["--socket", NOBODY, "explain", what]) == 0

    assert capsys.readouterr().out.startswith("SXid 12028: ")


def test_every_known_number_is_explained() -> None:
    """No row of the tables breaks the command, and each names its class and when it ends."""
    table, loaded = load_xid_table(), Loaded(settings=Settings(), sources={}, files=())

    for number in (*table.xids, *table.sxids):
        record = xid_record("", number, loaded, registry(), table)
        labels = [label for label, _ in record.facts]
        assert record.fields["known"] is True
        assert record.number == number
        assert "Class" in labels
        assert ("Ends when" in labels) is (record.node_class != "decode")


def test_a_number_in_no_table_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """An Xid of a newer driver is not an error."""
    assert main(["--socket", NOBODY, "explain", "xid", "9999"]) == 0

    assert "not in the table of this version; taken as class check" in capsys.readouterr().out


def test_what_is_seen_now_comes_from_the_daemon(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a daemon the standing record is shown with its evidence line."""
    records = [record for record in scenes.two_xids().memory.xids.values() if record.cleared is None]

    assert main(["--socket", str(path), "explain", "xid", str(records[0].number)]) == 0

    printed = capsys.readouterr().out
    assert f"Now        xid {records[0].number} on GPU " in printed
    assert "not known" not in printed


def test_commands_can_be_pasted_as_they_stand(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The variable in them is set before, to the device in trouble; without one the page says what it is."""
    xid = next(record for record in scenes.two_xids().memory.xids.values() if record.cleared is None)

    main(["--socket", str(path), "explain", "xid", str(xid.number)])
    known = capsys.readouterr().out
    main(["--socket", NOBODY, "explain", "ecc.uncorrected"])
    unknown = capsys.readouterr().out

    assert f"\n  GPU={xid.pci_address}\n" in known
    assert "\n  GPU=...    # its PCI address, from nodeagent status\n" in unknown


def test_equal_rows_of_a_check_take_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A first screen that lists eight healthy GPUs is no first screen."""
    main(["--socket", str(path), "explain", "gpu.lost"])

    assert capsys.readouterr().out.count("ok, GPU ") == 1


def test_a_number_that_was_not_seen_is_said(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not seen is not the same as not known."""
    assert main(["--socket", str(path), "explain", "xid", "8"]) == 0

    assert "Now        not seen on this node" in capsys.readouterr().out


def test_rows_of_a_check_are_shown_now(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each target's state with its sentence or value."""
    assert main(["--socket", str(path), "explain", "gpu.lost", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "nodeagent/explain/v1"
    assert {row["id"] for row in answer["now"]} == {"gpu.lost"}


def test_values_in_force_and_overrides_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator's own words stand where the defaults would."""
    file = tmp_path / "nodeagent.toml"
    file.write_text(
        '[gpu.xid]\n63 = "vendor"\n[cluster]\ntaint_prefix = "example.com"\n'
        '[checks."disk.full"]\nclass = "reboot"\navailable_percent = 9\nenabled = false\n'
    )

    main(["--socket", NOBODY, "--config", str(file), "explain", "63"])
    xid = capsys.readouterr().out
    main(["--socket", NOBODY, "--config", str(file), "explain", "disk.full"])
    disk = capsys.readouterr().out

    assert "Class      vendor: critical, asks for the taint example.com/gpu-unhealthy:NoSchedule" in xid
    assert f"Override   by {file}; the table says check" in xid
    assert "Class      reboot: critical, asks for the taint example.com/node-unhealthy:NoSchedule" in disk
    assert f"available_percent = 9.0 % ({file})" in disk
    assert "Disabled   by the configuration" in disk


def test_a_broken_configuration_does_not_stop_an_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defaults are shown, and it is said."""
    file = tmp_path / "nodeagent.toml"
    file.write_text("[gpu\n")

    assert main(["--socket", NOBODY, "--config", str(file), "explain", "disk.full"]) == 0

    printed = capsys.readouterr()
    assert printed.err.startswith(
        f"nodeagent: the configuration cannot be used, defaults are shown: {file}: "
    )
    assert printed.out.startswith("disk.full: ")


def test_verbose_prints_the_whole_page(capsys: pytest.CaptureFixture[str]) -> None:
    """-v ends with the page as it is, without its front matter."""
    main(["--socket", NOBODY, "explain", "disk.full", "-v"])

    page = load_page("disk.full")
    assert page is not None
    assert capsys.readouterr().out.endswith(page.text)
    assert not page.text.startswith("---")


def test_a_page_is_taken_apart() -> None:
    """Sections by heading, commands from the code blocks of Diagnosis only."""
    page = parse_page(
        "---\na: b\n---\n# t\n\n## Meaning\n\nwords\n\n"
        "## Diagnosis\n1. x\n   ```\n   ls -l\n   id\n   ```\n## Verify\n```\nno\n```\n"
    )

    assert page.sections["meaning"] == "words"
    assert page.commands == ["ls -l", "id"]
