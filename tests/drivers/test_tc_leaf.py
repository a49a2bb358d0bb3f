"""A leaf's queue as it is sent and as it is read: also of a kind that the kernel of the tests may lack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nodeagent.drivers.tc import kernel
from nodeagent.drivers.tc.reading import LEAF_KINDS
from nodeagent.drivers.tc.write import HANDLE, Writer
from nodeagent.rtnetlink import Message

HEADER_BYTES = 16
LONGEST_BYTES = {"fq_codel": 1 << 30, "bfifo": (1 << 32) - 1}
"""What the kernel itself holds: fq_codel cuts its memory to 2 GiB, bfifo's limit has 32 bits."""


class Wire:
    """Keeps the bytes of the last request, as they would go to the kernel."""

    sent = b""

    async def nlm_request(self, message: Any, type_: int, flags: int) -> AsyncIterator[None]:
        """Encode and answer nothing."""
        message["header"]["type"], message["header"]["flags"] = type_, flags
        message.encode()
        self.sent = bytes(message.data)
        return _nothing()


async def _nothing() -> AsyncIterator[None]:
    for _ in ():
        yield


@pytest.mark.parametrize("kind", LEAF_KINDS)
@pytest.mark.parametrize("limit_bytes", [16_384, 62_500, 1 << 30, (1 << 32) - 1, 10**13])
def test_a_leaf_is_read_as_it_is_sent(kind: str, limit_bytes: int) -> None:
    """Kind, place and limit come back; a limit beyond what the kind can hold is the longest that it can."""
    wire = Wire()
    assert asyncio.run(Writer(wire).put_leaf(7, 0x10, kind, limit_bytes))
    found = kernel._qdisc(Message(wire.sent, HEADER_BYTES, len(wire.sent)), 7)

    assert found is not None
    assert (found.ifindex, found.kind, found.parent) == (7, kind, HANDLE | 0x10)
    assert found.limit_bytes == min(limit_bytes, LONGEST_BYTES[kind])
