"""Tries out what marking and shaping need of kernel and iptables, in a network namespace of its own.

`python -m nodeagent.net_probe` is a child process: it leaves the host's namespace before it touches
anything, so that no table of the host is ever written. Where it may not leave, it tries nothing and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from nodeagent.drivers.ipset import IpSets, SetSpec
from nodeagent.drivers.iptables import choose_backend
from nodeagent.drivers.iptables.programs import Backend, found, run
from nodeagent.drivers.tc import trial
from nodeagent.errors import DriverError
from nodeagent.traffic import KernelFeature, KernelFeatures

DEADLINE_SECONDS = 20.0
_CLONE_NEWNET = 0x40000000
_ARGUMENTS = 2
"""Of the child: the paths of iptables and ip6tables without -save."""
NET, IP = "nodeagent-probe-net", "nodeagent-probe-ip"
CGROUP = "match cgroup v2 path"
RULES = {
    "match comment": '-A FORWARD -m comment --comment "nodeagent probe"',
    "match set (xt_set)": f"-A FORWARD -m set --match-set {NET}{{family}} dst",
    "target CLASSIFY": "-A FORWARD -j CLASSIFY --set-class 4e:f",
    "target SET --map-prio": f"-A FORWARD -j SET --map-set {IP}{{family}} src --map-prio",
    "target SET --map-mark": f"-A FORWARD -j SET --map-set {IP}{{family}} src --map-mark --map-prio",
    CGROUP: "-A POSTROUTING -m cgroup --path /",
}
"""Feature -> a rule of mangle that needs it."""
OPTIONAL = {
    "target SET --map-mark": "without it classes are set and no marks",
    CGROUP: "without it hostNetwork pods are part of the host's bytes",
}


async def probe(iptables_path: str) -> KernelFeatures:
    """Programs and backend as the host has them, and the rest from a child. Raises nothing of DriverError."""
    features = [_programs(name) for name in ("nft", "legacy")]
    try:
        backend = await choose_backend(iptables_path)
    except DriverError as error:
        features.append(KernelFeature(name="backend", works=False, detail=str(error)))
        features += trial.untried("not tried: there is no iptables to mark with")
    else:
        features.append(KernelFeature(name="backend", works=True, detail=f"{backend.name}: {backend.reason}"))
        features += await _tried(backend)
    return KernelFeatures(features=tuple(features))


def _programs(backend: str) -> KernelFeature:
    programs = [f"{program}-{backend}" for program in ("iptables", "ip6tables")]
    names = [f"{program}{verb}" for program in programs for verb in ("-save", "-restore")]
    missing = [name for name in names if not found(name)]
    detail = f"missing: {', '.join(missing)}" if missing else "installed"
    return KernelFeature(name=f"iptables-{backend}", works=not missing, needed=False, detail=detail)


async def _tried(backend: Backend) -> list[KernelFeature]:
    """What the child found; every feature as not tried when it failed."""
    argv = [sys.executable, "-P", "-m", "nodeagent.net_probe", backend.prefix[4], backend.prefix[6]]
    try:
        text = await run(argv, "probe", deadline_seconds=DEADLINE_SECONDS)
        features = msgspec.json.decode(text, type=KernelFeatures).features
        return [_as_used(feature, backend) for feature in features]
    except (DriverError, msgspec.MsgspecError) as error:
        names = ("set hash:net", "set hash:ip", *RULES)
        why = f"not tried: {error}"
        return [*(KernelFeature(name=name, works=None, detail=why) for name in names), *trial.untried(why)]


def _as_used(feature: KernelFeature, backend: Backend) -> KernelFeature:
    """A legacy rule whose cgroup has ended makes every later write of the table fail: none is made."""
    if backend.name != "legacy" or feature.name != CGROUP:
        return feature
    return msgspec.structs.replace(feature, works=None, detail=f"not used with legacy; {OPTIONAL[CGROUP]}")


# --------------------------------------------------------------------------- the child


def main(arguments: list[str]) -> int:
    """Leave the host's namespace, try everything, print KernelFeatures as JSON."""
    if len(arguments) != _ARGUMENTS:
        return 64
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        sys.stderr.write(f"no network namespace of its own can be made ({reason}); run it as root\n")
        return 77
    with tempfile.TemporaryDirectory(prefix="nodeagent-probe-") as folder:
        os.environ["XTABLES_LOCKFILE"] = str(Path(folder) / "lock")  # the host's is not ours to hold
        features = asyncio.run(_try_all(dict(zip((4, 6), arguments, strict=True))))
    sys.stdout.write(msgspec.json.encode(KernelFeatures(features=features)).decode())
    return 0


async def _try_all(prefix: dict[int, str]) -> tuple[KernelFeature, ...]:
    families = (4, 6) if Path("/proc/net/if_inet6").exists() else (4,)
    failures: dict[str, str] = {}
    for family in families:
        for spec in (
            SetSpec(name=f"{NET}{family}", kind="hash:net", family=family),
            SetSpec(
                name=f"{IP}{family}", kind="hash:ip", family=family, counters=True, comment=True, skbinfo=True
            ),
        ):
            async with _noted(failures, f"set {spec.kind}", family):
                await IpSets().ensure(spec)
        for name, rule in RULES.items():
            async with _noted(failures, name, family):
                text = f"*mangle\n{rule.format(family=family)}\nCOMMIT\n"
                await run([f"{prefix[family]}-restore", "--noflush"], "restore", text)
    names = ("set hash:net", "set hash:ip", *RULES)
    found_there = "IPv4 and IPv6" if families == (4, 6) else "IPv4; this host has no IPv6"
    marking = (_feature(name, failures.get(name), found_there) for name in names)
    return (*marking, *await trial.try_features())


def _feature(name: str, failure: str | None, found_there: str) -> KernelFeature:
    detail = failure or found_there
    if failure and name in OPTIONAL:
        detail = f"{OPTIONAL[name]} ({failure})"
    return KernelFeature(name=name, works=failure is None, needed=name not in OPTIONAL, detail=detail)


@contextlib.asynccontextmanager
async def _noted(failures: dict[str, str], name: str, family: int) -> AsyncIterator[None]:
    try:
        yield
    except DriverError as error:
        failures.setdefault(name, f"IPv{family}: {error.detail or error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
