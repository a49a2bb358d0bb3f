"""The language of iptables-save and iptables-restore: words, segments, and one spelling for each rule.

Saved rules are not spelt as they were written (hex gets zeros, quotes come and go, the order changes with
the backend), so both sides of a comparison go through `canonical`. What it does not know it keeps, so that
a rule with anything more in it is never taken for ours.
"""

from __future__ import annotations

import re

from msgspec import Struct

from nodeagent.traffic import Counter

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_SEGMENT = frozenset({"-i", "-o", "-s", "-d", "-p", "-f", "-m", "-j", "-g"})
_ORDER = ("-s", "-d", "-i", "-o", "-m set", "-m cgroup", "other", "-m comment", "-j")
_BARE = re.compile(r"[A-Za-z0-9_./:@,+=-]+")
_CLASS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,8})")
_COUNTED = re.compile(r"\[(\d+):(\d+)\] (.*)")


class SavedRule(Struct, frozen=True, kw_only=True):
    """One line `[packets:bytes] -A CHAIN arguments`."""

    chain: str
    arguments: str
    """As saved; this is what deletes it again."""
    counter: Counter = Counter()


class SavedTable(Struct, frozen=True, kw_only=True):
    """One table between `*name` and `COMMIT`."""

    name: str
    chains: tuple[str, ...]
    rules: tuple[SavedRule, ...]


def words(text: str) -> list[str]:
    """The words of a rule, quotes and backslashes undone."""
    return [
        re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]
        for match in _WORD.finditer(text)
    ]


def segments(text: str) -> list[tuple[str, ...]]:
    """The words in groups: an option of the rule itself, or one match or the target with its options."""
    found: list[list[str]] = []
    rest = words(text)
    for position, word in enumerate(rest):
        following = rest[position + 1] if position + 1 < len(rest) else ""
        inverted = bool(found) and found[-1] == ["!"]
        starts = word in _SEGMENT or (word == "!" and following in _SEGMENT)
        if (starts and not inverted) or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return [tuple(segment) for segment in found]


def canonical(text: str) -> str:
    """The one spelling of a rule's arguments: see docs/ownership.md for the order.

    `[-s|-d PREFIX] [-i|-o DEVICE] [-m set ...] [-m cgroup ...] [-m comment --comment "TEXT"]
    [-j TARGET ...]`, the comment always in double quotes, class ids without leading zeros, the flags of
    SET by name.
    """
    return " ".join(_spelt(segment) for segment in sorted(segments(text), key=_rank))


def target_of(text: str) -> str:
    """The chain or target that a rule jumps to; "" for one that only counts."""
    for segment in segments(text):
        if segment[0] in ("-j", "-g") and len(segment) > 1:
            return segment[1]
    return ""


def comment_of(text: str) -> str:
    """The first comment of a rule; "" without one."""
    for segment in segments(text):
        if segment[:3] == ("-m", "comment", "--comment") and len(segment) > 3:
            return segment[3]
    return ""


def _rank(segment: tuple[str, ...]) -> int:
    name = " ".join(segment[:2]) if segment[0] == "-m" else segment[0]
    return _ORDER.index(name) if name in _ORDER else _ORDER.index("other")


def _spelt(segment: tuple[str, ...]) -> str:
    if segment[:2] == ("-j", "SET"):
        named = [word for word in segment[2:] if not word.startswith("--map-") or word == "--map-set"]
        flags = sorted(word for word in segment[2:] if word.startswith("--map-") and word != "--map-set")
        segment = (*segment[:2], *named, *flags)
    spelt, previous = [], ""
    for word in segment:
        match = _CLASS.fullmatch(word) if previous == "--set-class" else None
        if match:
            spelt.append(f"{int(match[1], 16):x}:{int(match[2], 16):x}")
        else:
            spelt.append(_quoted(word, always=previous == "--comment"))
        previous = word
    return " ".join(spelt)


def _quoted(word: str, *, always: bool) -> str:
    if not always and _BARE.fullmatch(word):
        return word
    if not always and word == "!":
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'


def parse_save(text: str) -> tuple[SavedTable, ...]:
    """Every table of an iptables-save, with or without counters.

    Raises ValueError when it ends inside a table or has a line that is none of its kind: half a table is
    not a table.
    """
    tables: list[SavedTable] = []
    name, chains, rules = "", list[str](), list[SavedRule]()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("*"):
            name, chains, rules = line[1:].strip(), [], []
        elif line.strip() == "COMMIT" and name:
            tables.append(SavedTable(name=name, chains=tuple(chains), rules=tuple(rules)))
            name = ""
        elif line.startswith(":") and name:
            chains.append(line[1:].split(" ", 1)[0])
        elif name:
            rules.append(_rule(line))
        else:
            raise ValueError(f"a line outside any table: {line[:80]!r}")
    if name:
        raise ValueError(f"the table {name} has no end")
    return tuple(tables)


def _rule(line: str) -> SavedRule:
    counter = Counter()
    if counted := _COUNTED.fullmatch(line):
        counter, line = Counter(packets=int(counted[1]), bytes=int(counted[2])), counted[3]
    parts = line.split(" ", 2)
    if parts[0] != "-A" or len(parts) < 2:
        raise ValueError(f"not a rule: {line[:80]!r}")
    return SavedRule(chain=parts[1], arguments=parts[2] if len(parts) > 2 else "", counter=counter)
