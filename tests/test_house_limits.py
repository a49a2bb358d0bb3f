"""The house limits as a test: sizes, docstrings, units in names. Offenders are printed."""

from __future__ import annotations

import msgspec
import pytest

from nodeagent import gpu_signals, memory, model, net_memory, net_signals, settings, signals
from tests import house_rules as rules

PURE_COUNTS = frozenset({
    "CheckRow.number", "Finding.number", "Hold.number",  # in the unit of the check's first limit
    "XidRecord.number", "XidEvent.number", "SxidEvent.number",  # NVIDIA's number of a fault kind
    "XidRecord.caused_by", "XidEvent.caused_by",  # another such number
    "CheckRow.silence", "Memory.silences_begun", "Silence.number", "SilenceCommand.ends",  # of a silence
    "Silence.user_id", "SilenceCommand.user_id",  # uids
    "FaultStep.count", "KernelFault.count",  # faults
    "Memory.schema",  # version of the state file
    "MarkMemory.mark_mask_asked",  # bits
    "ShapeMemory.namespace_minors",  # identities
    "GpuMemory.index", "GpuIdentity.index", "GpuIdentity.minor",  # positions in an enumeration
    "GpuIdentity.pci_device_id", "GpuIdentity.pci_board_id",  # identities, not quantities
    "PcieLink.generation", "PcieLink.max_generation",  # a version
    "FabricState.state", "FabricState.status", "FabricState.health_summary",  # codes of NVML
    "FabricState.health_mask",  # bits
    "GpuMemory.links_seen",  # named after what they count
    "GpuMemory.recovery_action", "RecoveryAction.value",  # a code of the driver's
    "Reading.sequence", "KernelLogCursor.sequence", "KernelLogStatus.sequence",  # order, not a quantity
    "WorkerStatus.pid", "GpuCommand.user_id", "NodeCommand.user_id",  # identities
    "WorkerStatus.misses", "WorkerStatus.restarts",  # named after what they count
    "KernelLogStatus.records", "KernelLogStatus.reopened",
    "GpuBaseline.count", "GpuProcesses.count", "XidEvent.count", "SxidEvent.count",
    "SxidEvent.link",  # which link
    "LinkMemory.index", "NetDevice.index",  # the kernel's number of a device
    "NetworkSettings.mark_mask",  # bits
    "Snapshot.entropy",  # 0 <= entropy < 1
    "Snapshot.inbox_dropped",  # events
})  # fmt: skip


def _structs(*modules: object) -> list[type[msgspec.Struct]]:
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    }
    return sorted(found, key=lambda struct: struct.__name__)


NOUNS = _structs(memory, model, settings, signals, gpu_signals, net_signals, net_memory)


def _everywhere(rule: object, paths: list) -> list[str]:
    return [
        line
        for path in paths
        for line in rule(str(path.relative_to(rules.ROOT)), path.read_text())  # type: ignore[operator]
    ]


def test_no_file_is_longer_than_the_house_allows() -> None:
    """No file of code or tests has more than 400 lines."""
    assert _everywhere(rules.too_long_file, rules.sources()) == []


def test_no_function_is_longer_than_the_house_allows() -> None:
    """No function in Python, C or shell has more than 50 lines."""
    assert _everywhere(rules.too_long_functions, rules.sources()) == []


def test_every_public_thing_is_documented() -> None:
    """Every public module, class and function of the package has a docstring."""
    package = [path for path in rules.sources(".py") if path.is_relative_to(rules.ROOT / "nodeagent")]

    assert len(package) > 20
    assert _everywhere(rules.undocumented, package) == []


def test_every_test_states_its_claim() -> None:
    """Every test has a docstring and something that can fail."""
    tests = [path for path in rules.sources(".py") if path.name.startswith("test_")]

    assert _everywhere(rules.claims_without_words, tests) == []
    assert _everywhere(rules.without_assertion, tests) == []


def test_every_number_in_a_noun_says_its_unit() -> None:
    """Numeric fields of model, settings, signals and memory end in a unit, pure counts aside."""
    assert len(NOUNS) > 30
    assert [line for noun in NOUNS for line in rules.unitless_numbers(noun, PURE_COUNTS)] == []


def test_the_list_of_pure_counts_holds_nothing_stale() -> None:
    """Each exception names a field that exists and would offend without it."""
    offending = {line.split()[0] for noun in NOUNS for line in rules.unitless_numbers(noun, frozenset())}

    assert sorted(PURE_COUNTS - offending) == []


class _Timer(msgspec.Struct):
    timeout: float
    wait_seconds: float
    name: str
    retries: int | None = None
    ages: dict[str, float] = {}


PYTHON_LONG = "def long():\n" + "    x = 1\n" * 50
C_LONG = "int\nlong_one(int a,\n         int b)\n{\n" + "    a++;\n" * 50 + "}\n"
C_SHORT = "static int\nshort_one(int a);\n\nint short_one(int a)\n{\n    return a;\n}\n" + "/* x */\n" * 60
SHELL_LONG = "long_one() {\n" + "  echo x\n" * 50 + "}\n"


@pytest.mark.parametrize(
    ("rule", "name", "text", "offenders"),
    [
        (rules.too_long_file, "a.py", "x\n" * 401, 1),
        (rules.too_long_file, "a.py", "x\n" * 400, 0),
        (rules.too_long_functions, "a.py", PYTHON_LONG, 1),
        (rules.too_long_functions, "a.py", PYTHON_LONG.replace("    x = 1\n", "", 1), 0),
        (rules.too_long_functions, "a.c", C_LONG, 1),
        (rules.too_long_functions, "a.c", C_SHORT, 0),
        (rules.too_long_functions, "a.sh", SHELL_LONG, 1),
        (rules.undocumented, "a.py", "def seen(): ...\nclass Seen:\n    def met(self): ...\n", 4),
        (rules.undocumented, "a.py", '"""Why."""\ndef _private(): ...\n', 0),
        (rules.claims_without_words, "a.py", "def test_x():\n    assert x\n", 1),
        (rules.without_assertion, "a.py", "def test_x():\n    run()\n", 1),
        (rules.without_assertion, "a.py", "def test_x():\n    assert run()\n", 0),
    ],
)
def test_each_rule_can_fail(rule: object, name: str, text: str, offenders: int) -> None:
    """An offender is found, its harmless twin is not."""
    assert len(rule(name, text)) == offenders  # type: ignore[operator]


def test_the_unit_rule_can_fail() -> None:
    """Numbers without a unit are found, also optional ones and those in dicts; other fields are not."""
    found = [line.split()[0] for line in rules.unitless_numbers(_Timer, frozenset())]

    assert found == ["_Timer.timeout", "_Timer.retries", "_Timer.ages"]
