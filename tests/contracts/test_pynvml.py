"""The installed pynvml has what the NVML worker calls, under the names and numbers it expects."""

from __future__ import annotations

import re
from pathlib import Path

import pynvml
import pytest

from nodeagent.drivers.nvml.library import NvmlFailure
from nodeagent.drivers.nvml.read import normal_address
from nodeagent.errors import DriverError, ErrorKind

SOURCES = Path(__file__).parents[2] / "nodeagent/drivers/nvml"
CALLS = sorted(
    set(re.findall(r"\bnvml[A-Z]\w+", "".join(path.read_text() for path in SOURCES.glob("*.py"))))
)
PREFIXES = {"nvmlDeviceGetComputeRunningProcesses"}
"""Completed with a version where they are called."""
FIELDS = {"nvmlReturn"}
"""Members of structures."""


@pytest.mark.parametrize("name", [name for name in CALLS if name not in PREFIXES | FIELDS])
def test_pynvml_has_what_is_called(name: str) -> None:
    """Every function and constant that the worker names exists."""
    assert hasattr(pynvml, name)


@pytest.mark.parametrize("name", [f"{prefix}_v{n}" for prefix in sorted(PREFIXES) for n in (2, 3)])
def test_pynvml_has_both_versions_of_a_call(name: str) -> None:
    """The newer for current drivers, the older for those that lack it."""
    assert hasattr(pynvml, name)


def test_only_the_worker_imports_pynvml() -> None:
    """No other module of the agent names it in an import."""
    package = SOURCES.parents[1]
    imports = re.compile(r"^\s*(import|from) pynvml", re.MULTILINE)
    importers = {path.parent for path in package.rglob("*.py") if imports.search(path.read_text())}
    assert importers == {SOURCES}


def test_the_recovery_action_is_field_230() -> None:
    """Ids of fields have been renumbered before; a wrong one would read another field in silence."""
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230


@pytest.mark.parametrize("code", sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
))
def test_every_error_of_nvml_is_a_driver_error(code: int) -> None:
    """It has a kind, a cause and a sentence with the code in it."""
    failure = NvmlFailure(code, "0000:4e:00.0", "nvmlDeviceGetName")
    assert isinstance(failure, DriverError)
    assert failure.kind in ErrorKind
    assert failure.cause in ("absent", "mismatch", "access_lost", "not_ready", "other")
    assert f"NVML returned {code}, " in failure.detail


ADDRESSES = [
    ("00000000:4E:00.0", "0000:4e:00.0"), (b"0000:4E:00.0", "0000:4e:00.0"),
    ("00000001:00:00.0", "0001:00:00.0"), ("0001C0DE:0A:1F.7", "1c0de:0a:1f.7"),
]


@pytest.mark.parametrize(("bus_id", "address"), ADDRESSES)
def test_addresses_are_written_as_the_kernel_does(bus_id: str | bytes, address: str) -> None:
    """Lower case, and no more digits of the domain than it has."""
    assert normal_address(bus_id) == address


@pytest.mark.parametrize("bus_id", ["", "4E", "00000000:4E:00", "0000:zz:00.0", b"\xff" * 8, "a:b:c:d.e"])
def test_what_is_no_address_is_invalid(bus_id: str | bytes) -> None:
    """The reader gets a DriverError, never another exception."""
    with pytest.raises(DriverError) as failed:
        normal_address(bus_id)
    assert failed.value.kind is ErrorKind.INVALID
