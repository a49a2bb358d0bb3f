"""Cases of `temperature.margin`."""

from nodeagent.errors import ErrorKind
from nodeagent.gpu_signals import TemperatureMargin
from nodeagent.signals import Unread
from tests.decide.build import GPU, Case, bad, not_applicable, ok, unknown

SIGNAL = f"gpu.temperature_margin@{GPU}"


def margin(celsius: int) -> TemperatureMargin:
    """Distance to the thermal limit."""
    return TemperatureMargin(margin_celsius=celsius)


CASES = (
    Case(name="healthy", readings={SIGNAL: margin(51)}, want=ok(GPU, value="51 C")),
    Case(name="at the limit: 2 degrees are left", readings={SIGNAL: margin(2)}, want=ok(GPU)),
    Case(
        name="over the limit: 1 degree",
        readings={SIGNAL: margin(1)},
        want=bad(GPU, value="1 C"),
    ),
    Case(name="over the limit: negative", readings={SIGNAL: margin(-3)}, want=bad(GPU, value="-3 C")),
    Case(
        name="over the limit that the operator set",
        readings={SIGNAL: margin(8)}, limits={"margin_celsius": 10}, want=bad(GPU, limit="10 C"),
    ),
    Case(
        name="unread: timeout",
        readings={SIGNAL: Unread(kind=ErrorKind.TIMEOUT, reason="no answer")},
        want=unknown(GPU),
    ),
    Case(
        name="unread: blank after a good read",
        readings={SIGNAL: Unread(kind=ErrorKind.LOST, reason="GPU is lost")},
        want=unknown(GPU),
    ),
    Case(
        name="not supported",
        readings={SIGNAL: Unread(kind=ErrorKind.ABSENT, reason="Not Supported")},
        want=not_applicable(GPU),
    ),
    Case(name="recovered: good again", readings={SIGNAL: margin(51)}, want=ok(GPU)),
    Case(name="missing on the board", readings={}, want=unknown()),
    Case(name="no GPU on this node", readings={}, gpu_wanted=False, want=not_applicable()),
)
