"""Every key of every fragment is judged here, and the good values are merged; the last file wins.

It opens no file and knows no check by itself: what may be configured of each is handed in. A key
that it does not know is a problem, never ignored.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, get_origin, get_type_hints

from msgspec import Struct

from nodeagent.config import values
from nodeagent.config.values import KnownLimit, Wrong, nearest, show, show_key
from nodeagent.dns_name import is_dns_label
from nodeagent.model import NodeClass
from nodeagent.quantity import bits_per_second
from nodeagent.settings import CheckSettings, NodeName, Settings


class KnownHold(Protocol):
    """What config must know of a check's hold rule."""

    @property
    def bad_polls(self) -> int:
        """Default n of "n of m"."""
    @property
    def of_polls(self) -> int:
        """Default m of "n of m"."""
    @property
    def proof(self) -> str:
        """reads | reset: what a raised fault needs to clear besides good polls."""


class KnownCheck(Protocol):
    """What config must know of a check; `decide.check.Check` has it."""

    @property
    def family(self) -> str:
        """gpu, driver, node or agent."""
    @property
    def node_class(self) -> NodeClass:
        """Default class."""
    @property
    def hold(self) -> KnownHold:
        """Default hold."""
    @property
    def limits(self) -> Sequence[KnownLimit]:
        """Limits that may be set."""


@functools.cache
def check_hints() -> dict[str, Any]:
    """Return key -> annotated type of what every `[checks."ID"]` takes besides the check's own limits."""
    hints = get_type_hints(CheckSettings, include_extras=True)
    del hints["limits"]
    return {_KEY_OF_FIELD.get(field, field): hint for field, hint in hints.items()}


_KEY_OF_FIELD = {"node_class": "class"}
_FIELD_OF_KEY = {"class": "node_class"}


def _check_settings(keys: Mapping[str, Any]) -> CheckSettings:
    common = {_FIELD_OF_KEY.get(key, key): value for key, value in keys.items() if key in check_hints()}
    return CheckSettings(limits={k: v for k, v in keys.items() if k not in check_hints()}, **common)


class Reader:
    """Collects values, their sources and every problem over all files."""

    def __init__(self, known_checks: Mapping[str, KnownCheck]) -> None:
        self.problems: list[str] = []
        self.sources: dict[str, str] = {}
        self._known_checks = known_checks
        self._sections: dict[str, type[Struct]] = {
            name: hint for name, hint in get_type_hints(Settings).items() if name != "checks"
        }
        self._values: dict[str, dict[str, Any]] = {name: {} for name in self._sections}
        self._checks: dict[str, dict[str, Any]] = {}
        self._named: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self._file = ""

    def read(self, file: str, content: Mapping[str, Any]) -> None:
        """Judge one file's keys and keep the good values; a later file's value replaces an earlier one."""
        self._file = file
        for name, table in content.items():
            if name not in self._sections and name != "checks":
                self._unknown_section(name, table)
            elif not isinstance(table, dict):
                self._problem(show_key(name), table, f"must be a section: [{name}]")
            elif name == "checks":
                for check_id, keys in table.items():
                    self._read_check(check_id, keys)
            else:
                self._read_section(name, table)

    def settings(self) -> Settings:
        """Return the merged values; only called when there is no problem."""
        for (section, key), tables in self._named.items():
            kind = get_type_hints(self._sections[section])[key].__args__[1]
            self._values[section][key] = {name: kind(**keys) for name, keys in sorted(tables.items())}
        built = {name: kind(**self._values[name]) for name, kind in self._sections.items()}
        checks = {check_id: _check_settings(keys) for check_id, keys in sorted(self._checks.items()) if keys}
        return Settings(checks=checks, **built)  # type: ignore[arg-type]  # the annotations named the types

    def judge_holds(self) -> None:
        """Add a problem for each check whose merged hold could never be met."""
        for check_id, keys in self._checks.items():
            hold = self._known_checks[check_id].hold
            bad_polls = keys.get("bad_polls", hold.bad_polls)
            of_polls = keys.get("of_polls", hold.of_polls)
            if bad_polls > of_polls:
                name = show_key("checks", check_id, "bad_polls" if "bad_polls" in keys else "of_polls")
                self.problems.append(
                    f"{self.sources[name]}: {show_key('checks', check_id)}: bad_polls = {bad_polls} of "
                    f"of_polls = {of_polls} can never be met; bad_polls must not be larger"
                )

    def judge_shares(self) -> None:
        """Add a problem for each namespace whose guarantee is above its limit."""
        for (section, table), namespaces in self._named.items():
            for label, keys in namespaces.items():
                limit, guarantee = keys.get("limit"), keys.get("guarantee")
                if limit and guarantee and bits_per_second(guarantee) > bits_per_second(limit):
                    name = show_key(section, table, label, "guarantee")
                    remedy = f"must be at most the limit, {limit}"
                    self.problems.append(f"{self.sources[name]}: {name} = {show(guarantee)}: {remedy}")

    def name_node(self, environment: Mapping[str, str]) -> None:
        """Fill `node.name` from NODE_NAME or the host name where no file names the node."""
        if self._values["node"].get("name"):
            return
        name, source = environment.get("NODE_NAME", ""), "environment NODE_NAME"
        if not name:
            name, source = socket.gethostname().lower(), "host name"
        elif problem := values.wrong(name, NodeName):
            self.problems.append(f"{source} = {show(name)}: must be {problem}")
        self._values["node"]["name"] = name
        self.sources["node.name"] = source

    def _read_section(self, section: str, table: Mapping[str, Any]) -> None:
        hints = get_type_hints(self._sections[section], include_extras=True)
        for key, value in table.items():
            name = show_key(section, key)
            if key not in hints:
                self._unknown_key(section, key, hints)
            elif get_origin(hints[key]) is dict and hints[key].__args__[1] is NodeClass:
                self._read_xids(section, key, value)
            elif get_origin(hints[key]) is dict:
                self._read_named(section, key, value, hints[key].__args__[1])
            else:
                with self._judging(name, value):
                    self._values[section][key] = values.convert(value, hints[key])

    def _read_xids(self, section: str, key: str, table: Any) -> None:
        if not isinstance(table, dict):
            self._problem(show_key(section, key), table, f"must be a section: [{section}.{key}]")
            return
        kept = self._values[section].setdefault(key, {})
        for number, value in table.items():
            name = show_key(section, key, number)
            if not values.is_xid_number(number):
                self._problem(name, value, 'the key must be an Xid number, like "63" = "ignore"')
                continue
            with self._judging(name, value):
                kept[number] = values.convert(value, NodeClass)

    def _read_named(self, section: str, key: str, table: Any, kind: type[Struct]) -> None:
        """Tables of one kind under names that the operator chooses; DNS labels, as namespaces are."""
        if not isinstance(table, dict):
            self._problem(show_key(section, key), table, f'must be sections: [{section}.{key}."NAME"]')
            return
        hints = get_type_hints(kind, include_extras=True)
        for label, keys in table.items():
            name = show_key(section, key, label)
            if not is_dns_label(label):
                self._problem(name, keys, "the key must be the name of a namespace")
                continue
            if not isinstance(keys, dict):
                self._problem(name, keys, f"must be a section: [{name}]")
                continue
            kept = self._named.setdefault((section, key), {}).setdefault(label, {})
            for inner, value in keys.items():
                full = show_key(section, key, label, inner)
                if inner not in hints:
                    self.problems.append(f"{self._file}: {full}: unknown key; {nearest(inner, hints)}")
                    continue
                with self._judging(full, value):
                    kept[inner] = values.convert(value, hints[inner])

    def _read_check(self, check_id: str, table: Any) -> None:
        check = self._known_checks.get(check_id)
        if check is None:
            self._unknown_check(check_id, table)
            return
        if not isinstance(table, dict):
            self._problem(show_key("checks", check_id), table, f'must be a section: [checks."{check_id}"]')
            return
        limits = {limit.name: limit for limit in check.limits}
        hints = check_hints()
        kept = self._checks.setdefault(check_id, {})
        for key, value in table.items():
            name = show_key("checks", check_id, key)
            if key not in hints and key not in limits:
                hint = nearest(key, [*hints, *limits])
                self.problems.append(f"{self._file}: {name}: unknown key; {hint}")
                continue
            with self._judging(name, value):
                if key in limits:
                    kept[key] = values.convert_limit(value, limits[key])
                else:
                    kept[key] = values.convert(value, hints[key])

    @contextlib.contextmanager
    def _judging(self, name: str, value: Any) -> Iterator[None]:
        """Note the source of a value that was taken, or the problem with one that was not."""
        try:
            yield
            self.sources[name] = self._file
        except Wrong as error:
            self._problem(name, value, f"must be {error}")

    def _problem(self, name: str, value: Any, remedy: str) -> None:
        self.problems.append(f"{self._file}: {name} = {show(value)}: {remedy}")

    def _unknown_section(self, name: str, value: Any) -> None:
        hint = nearest(name, [*self._sections, "checks"])
        kind = "section" if isinstance(value, dict) else "key outside any section"
        self.problems.append(f"{self._file}: {show_key(name)}: unknown {kind}; {hint}")

    def _unknown_key(self, section: str, key: str, hints: Mapping[str, Any]) -> None:
        hint = nearest(key, hints)
        for other, kind in self._sections.items():
            if "did you mean" not in hint and key in kind.__struct_fields__:
                hint = f"it belongs to section [{other}]"
        self.problems.append(f"{self._file}: {show_key(section, key)}: unknown key; {hint}")

    def _unknown_check(self, check_id: str, table: Any) -> None:
        name = show_key("checks", check_id)
        for inner in table if isinstance(table, dict) else ():
            if f"{check_id}.{inner}" in self._known_checks:
                hint = f'write the id in quotes: [checks."{check_id}.{inner}"]'
                self.problems.append(f"{self._file}: {name}: unknown check; {hint}")
                return
        hint = nearest(check_id, self._known_checks)
        self.problems.append(f"{self._file}: {name}: unknown check; {hint}")
