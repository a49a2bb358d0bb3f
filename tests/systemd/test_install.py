"""Unit, fragments and install scripts without a boot: verifier, score, what is written and what is kept."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.config import load
from nodeagent.decide.registry import registry
from nodeagent.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
SYSTEMD = REPOSITORY / "systemd"
FRAGMENTS = sorted((SYSTEMD / "conf.d").glob("*.toml"))

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd"
)


def _script(name: str, destination: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DESTDIR": str(destination), "VENV": "no", **variables}
    return subprocess.run(
        [SYSTEMD / name], check=False, env=environment, capture_output=True, text=True, timeout=60
    )


def _files(root: Path) -> set[str]:
    return {f"/{path.relative_to(root)}" for path in root.rglob("*") if not path.is_dir()}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root below which nodeagent was installed with the default prefix."""
    assert _script("install.sh", tmp_path).returncode == 0
    return tmp_path


@needs_analyze
def test_unit_passes_the_verifier_and_the_score() -> None:
    """systemd's own verifier is silent, and the exposure is at most 3.3."""
    done = subprocess.run([SYSTEMD / "verify.sh"], check=False, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    score = re.search(r"exposure level for nodeagent.service: ([0-9.]+)", done.stdout)
    assert score
    assert float(score[1]) <= 3.3


def test_each_open_door_has_its_reason() -> None:
    """Capability, device and address lines follow a comment that says why; a new one needs one too."""
    lines = (SYSTEMD / "nodeagent.service").read_text("utf-8").splitlines()
    doors = ("CapabilityBoundingSet=", "DeviceAllow=", "RestrictAddressFamilies=", "IPAddressAllow=", "User=")
    opened = [number for number, line in enumerate(lines) if line.startswith(doors)]

    assert len(opened) >= 7
    for number in opened:
        block = lines[max(0, number - 3) : number]
        assert any(line.startswith("# ") for line in block), lines[number]


def test_install_writes_exactly_these_files(installed: Path) -> None:
    """Everything an installation brings, so that a new file is also one that uninstall removes."""
    assert _files(installed) == {
        "/etc/nodeagent/conf.d/10-checks.toml",
        "/etc/nodeagent/conf.d/10-gpu.toml",
        "/etc/nodeagent/conf.d/10-node.toml",
        "/etc/nodeagent/conf.d/10-status.toml",
        "/etc/systemd/system/nodeagent.service",
        "/usr/lib/systemd/catalog/nodeagent.catalog",
        "/usr/lib/sysusers.d/nodeagent.conf",
        "/usr/lib/tmpfiles.d/nodeagent.conf",
        "/usr/local/bin/nodeagent",
        "/usr/share/doc/nodeagent/README.md",
    }


def test_prefix_reaches_unit_and_link(tmp_path: Path) -> None:
    """Another PREFIX is where the unit starts from and where the command points."""
    _script("install.sh", tmp_path, PREFIX="/srv/na")

    unit = (tmp_path / "etc/systemd/system/nodeagent.service").read_text("utf-8")
    assert "ExecStart=/srv/na/bin/nodeagent run" in unit
    assert "/opt/nodeagent" not in unit.partition("[Unit]")[2]
    assert (tmp_path / "usr/local/bin/nodeagent").readlink() == Path("/srv/na/bin/nodeagent")


def test_uninstall_removes_all_of_it(installed: Path) -> None:
    """An untouched installation leaves no file behind and has nothing to say."""
    done = _script("uninstall.sh", installed)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert _files(installed) == set()


def test_edited_configuration_survives_install_and_uninstall(installed: Path) -> None:
    """What an operator wrote is never overwritten or removed, and is named."""
    edited = installed / "etc/nodeagent/conf.d/10-gpu.toml"
    edited.write_text("[gpu]\nexpected_count = 8\n", encoding="utf-8")
    again = _script("install.sh", installed)
    gone = _script("uninstall.sh", installed)

    assert edited.read_text("utf-8") == "[gpu]\nexpected_count = 8\n"
    assert f"kept {edited}" in again.stdout
    assert str(edited) in gone.stdout
    assert _files(installed) == {"/etc/nodeagent/conf.d/10-gpu.toml"}


def test_purge_removes_edited_configuration_and_memory(installed: Path) -> None:
    """PURGE=1 leaves nothing at all."""
    (installed / "etc/nodeagent/nodeagent.toml").write_text("[node]\n", encoding="utf-8")
    state = installed / "var/lib/nodeagent"
    state.mkdir(parents=True)
    (state / "memory.json").write_text("{}", encoding="utf-8")
    _script("uninstall.sh", installed, PURGE="1")

    assert _files(installed) == set()


@pytest.mark.parametrize("script", ["install.sh", "uninstall.sh"])
def test_foreign_prefix_is_refused(tmp_path: Path, script: str) -> None:
    """A directory that is no virtual environment is never cleared, as PREFIX=/usr would be."""
    precious = tmp_path / "usr/bin/sh"
    precious.parent.mkdir(parents=True)
    precious.write_text("", encoding="utf-8")
    done = _script(script, tmp_path, PREFIX="/usr", VENV="yes")

    assert done.returncode == 64
    assert "choose another PREFIX" in done.stderr
    assert precious.exists()


@pytest.mark.parametrize("prefix", ["relative", "/", "/opt/"])
def test_odd_prefix_is_refused(tmp_path: Path, prefix: str) -> None:
    """A PREFIX that is no plain absolute path is answered with what is right."""
    done = _script("install.sh", tmp_path, PREFIX=prefix)

    assert done.returncode == 64
    assert f"not '{prefix}'" in done.stderr
    assert _files(tmp_path) == set()


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.stem)
def test_shipped_fragment_changes_nothing(fragment: Path) -> None:
    """Every line is a comment, so an installation runs on the built-in defaults."""
    lines = fragment.read_text("utf-8").splitlines()

    assert [line for line in lines if line and not line.startswith("#")] == []


def _uncommented(text: str) -> str:
    return re.sub(r'^#(?=[\["a-z_]+.*(?:=|\]$))', "", text, flags=re.MULTILINE)


def test_values_in_the_fragments_are_the_defaults(tmp_path: Path) -> None:
    """Uncommented, every key is known, and all but the example of an Xid is what is in force anyway."""
    (tmp_path / "conf.d").mkdir()
    for fragment in FRAGMENTS:
        (tmp_path / "conf.d" / fragment.name).write_text(_uncommented(fragment.read_text("utf-8")), "utf-8")
    main = tmp_path / "nodeagent.toml"
    main.write_text("", encoding="utf-8")
    loaded = load(str(main), registry(), {"NODE_NAME": "n"})

    check = registry()["disk.full"]
    shown = loaded.settings.check("disk.full")
    assert loaded.settings.gpu.xid.keys() == {"63"}
    assert loaded.settings.status == Settings().status
    assert (shown.node_class, shown.enabled) == (check.node_class, True)
    assert (shown.bad_polls, shown.of_polls) == (check.hold.bad_polls, check.hold.of_polls)
    assert (shown.good_polls, shown.minimum_seconds) == (check.hold.good_polls, check.hold.minimum_seconds)
    assert {
        name: list(value) if isinstance(value, tuple) else value for name, value in shown.limits.items()
    } == {
        limit.name: list(limit.default) if isinstance(limit.default, tuple) else limit.default
        for limit in check.limits
    }
    assert {"node.dry_run", "gpu.expected_count", "status.metrics_listen"} <= loaded.sources.keys()
