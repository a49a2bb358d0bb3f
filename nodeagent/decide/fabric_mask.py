"""The bit fields of a GPU's fabric health, each with its own sense.

In some fields 1 means a fault, in others 1 is good and 2 the fault, and 0 is "not reported" in all: a mask
that is not zero is therefore no fault by itself.
"""

from __future__ import annotations

from msgspec import Struct

NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = range(4)
"""States of the registration."""
UNHEALTHY, LIMITED_CAPACITY = 2, 3
"""Bad values of the health summary."""


class MaskField(Struct, frozen=True, kw_only=True):
    """One field of the mask."""

    shift: int
    mask: int
    faults: dict[int, str]
    """Value -> what it means; every other value is good or not reported."""


FIELDS = (
    MaskField(shift=0, mask=0x3, faults={1: "bandwidth below nominal"}),
    MaskField(shift=2, mask=0x3, faults={1: "routes are being rebuilt"}),
    MaskField(shift=4, mask=0x3, faults={1: "routes are broken"}),
    MaskField(shift=6, mask=0x3, faults={1: "recovering from an access timeout"}),
    MaskField(shift=8, mask=0xF, faults={
        2: "wrong system GUID", 3: "wrong chassis serial number", 4: "no partition", 5: "too few NVLinks",
        6: "GPU firmware does not fit", 7: "wrong location", 8: "GPU in an invalid state",
    }),
    MaskField(shift=12, mask=0x3, faults={2: "no partition is assigned"}),
    MaskField(shift=14, mask=0x3, faults={2: "the global fabric manager is not connected"}),
)


def mask_faults(health_mask: int) -> list[str]:
    """What the mask complains of, in the order of its fields."""
    found = [field.faults.get((health_mask >> field.shift) & field.mask, "") for field in FIELDS]
    return [fault for fault in found if fault]
