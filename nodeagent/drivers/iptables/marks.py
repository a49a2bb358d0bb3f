"""Who else uses bits of the packet mark: a scan of installed rules, so that no bit is taken twice.

Rules of nftables' own language and marks set by eBPF are not seen here.
"""

from __future__ import annotations

from nodeagent.drivers.iptables.programs import PROGRAM, found, saved
from nodeagent.drivers.iptables.reading import is_own
from nodeagent.drivers.iptables.text import SavedRule, segments, target_of
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import FAMILIES

ALL_BITS = 0xFFFFFFFF


async def mark_users(mask: int) -> tuple[str, ...]:
    """Foreign rules of both backends and families that read or write a bit under `mask`, as text.

    Raises DriverError when a backend that is installed could not be read: an unread rule is no free bit.
    """
    users: list[str] = []
    for backend in ("legacy", "nft"):
        for family in FAMILIES:
            program = f"{PROGRAM[family]}-{backend}"
            if not (prefix := found(f"{program}-save").removesuffix("-save")):
                continue
            try:
                tables = await saved(backend, prefix, family)
            except DriverError as error:
                if error.kind is not ErrorKind.ABSENT:
                    raise
                continue  # this kernel has no such backend
            users += [
                f"{program} -t {table.name} -A {rule.chain} {rule.arguments}"
                for table in tables
                for rule in table.rules
                if _is_foreign(rule) and used_bits(rule.arguments) & mask
            ]
    return tuple(users)


def _is_foreign(rule: SavedRule) -> bool:
    return not is_own(rule.chain) and not is_own(target_of(rule.arguments))


def used_bits(arguments: str) -> int:
    """The bits of the packet mark that a rule tests, sets or copies."""
    bits = 0
    for segment in segments(arguments):
        options = {word: segment[at + 1] if at + 1 < len(segment) else "" for at, word in enumerate(segment)}
        name = " ".join(segment[:2])
        if name == "-j MARK":
            bits |= _set_bits(options)
        elif name == "-m mark":
            bits |= _value_and_mask(options.get("--mark", ""))[1]
        elif name == "-j CONNMARK" and ("--restore-mark" in options or "--save-mark" in options):
            bits |= _number(options.get("--nfmask") or options.get("--mask") or "", ALL_BITS)
        elif name == "-j TPROXY":
            value, mask = _value_and_mask(options.get("--tproxy-mark", "0x0/0x0"))
            bits |= value | mask
        elif (name == "-j SET" and "--map-mark" in options) or "--restore-skmark" in options:
            bits |= ALL_BITS
    return bits


def _set_bits(options: dict[str, str]) -> int:
    bits = 0
    for option in ("--set-xmark", "--set-mark"):
        if option in options:
            value, mask = _value_and_mask(options[option])
            bits |= value | mask
    for option in ("--or-mark", "--xor-mark"):
        bits |= _number(options.get(option, "0"), ALL_BITS)
    if "--and-mark" in options:
        bits |= ALL_BITS & ~_number(options["--and-mark"], 0)
    return bits


def _value_and_mask(text: str) -> tuple[int, int]:
    value, _, mask = text.partition("/")
    return _number(value, ALL_BITS), _number(mask, ALL_BITS)


def _number(text: str, otherwise: int) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return otherwise
