"""Cases of `link.flaps`: how often carrier was lost in the window, by the kernel's own count."""

from nodeagent.errors import ErrorKind
from nodeagent.net_memory import Growth
from nodeagent.signals import Unread
from tests.decide.build import Case, bad, not_applicable, ok, unknown
from tests.decide.links_build import device, grown, link, remembered

SIGNAL = "link.devices"
READ = {SIGNAL: (device(down_count=100),)}
KEY = "carrier losses|eth0"


def lost(*steps: int, seconds_apart: float = 60.0) -> dict[str, Growth]:
    """So many losses at the last reads."""
    return {KEY: grown(*steps, seconds_apart=seconds_apart)}


HERE = {"eth0": link()}
IN_BOOT = Growth(read_at_seconds=3599.0, last_count=100, steps=((100.0, 50), (300.0, 3)))

CASES = (
    Case(
        name="healthy", readings=READ, memory=remembered(HERE, growths=lost(0)),
        want=ok("eth0", value="0 losses", limit="3 losses in 1 h"),
    ),
    Case(
        name="healthy: the first sample is a baseline, however large", readings=READ,
        memory=remembered(HERE), want=ok("eth0", value="first sample"),
    ),
    Case(
        name="at the limit", readings=READ, memory=remembered(HERE, growths=lost(1, 1, 1)), want=ok("eth0"),
    ),
    Case(
        name="over the limit", readings=READ, memory=remembered(HERE, growths=lost(1, 2, 1)),
        want=bad("eth0", value="4 losses", says="eth0 lost its carrier 4 times in 1 h"),
    ),
    Case(
        name="a limit of the operator's", readings=READ, memory=remembered(HERE, growths=lost(1)),
        limits={"losses_count": 0}, want=bad("eth0", limit="0 losses in 1 h"),
    ),
    Case(
        name="a window of the operator's", readings=READ, limits={"window_seconds": 90.0},
        memory=remembered(HERE, growths=lost(9, 1, 1)), want=ok("eth0", value="2 losses"),
    ),
    Case(
        name="boot grace: losses while links trained after boot do not count",
        readings=READ, memory=remembered(HERE, growths={KEY: IN_BOOT}), want=ok("eth0", value="0 losses"),
    ),
    Case(
        name="recovered: the losses are older than the window", readings=READ,
        memory=remembered(HERE, growths=lost(9, 0, seconds_apart=3600.0)), want=ok("eth0"),
    ),
    Case(
        name="switched off by an administrator", memory=remembered(HERE, growths=lost(9)),
        readings={SIGNAL: (device(is_up=False, carrier=None),)}, want=not_applicable("eth0"),
    ),
    Case(
        name="unread: blank after a good read", memory=remembered(HERE, growths=lost(9)),
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="hangs")}, want=unknown(),
    ),
    Case(
        name="not supported: the kernel does not count", memory=remembered(HERE),
        readings={SIGNAL: (device(down_count=None),)}, want=not_applicable("eth0"),
    ),
    Case(name="no network but loopback", readings={SIGNAL: ()}, want=not_applicable()),
    Case(name="missing on the board", readings={}, want=unknown()),
)
