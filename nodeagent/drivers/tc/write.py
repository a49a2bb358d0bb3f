"""Single writes to tc and to the ifb by pyroute2; every failure is a DriverError.

Policy-free: what may be written is decided by the shaper. Rates go out as numbers of bytes per second with
the 64-bit attribute, bursts in the kernel's own ticks, so that they are read back as they were sent.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import types
from collections.abc import AsyncIterator
from typing import Any

from pyroute2 import AsyncIPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import tcmsg as coders
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from nodeagent.drivers.tc.kernel import EGRESS, FQ_CODEL_MEMORY, INGRESS_SLOT, ROOT, ticks
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.netlink_attempt import attempt
from nodeagent.shape import ShapeClass
from nodeagent.traffic import HTB_MAJOR

DEADLINE_SECONDS = 5.0
HANDLE = HTB_MAJOR << 16
PREFERENCE = 0xFFFF
"""The last place that a filter can have."""
FILTER_NAME = "nodeagent"
CLSACT_CHAIN = 0x4E4F44
"""An empty chain of that number in the egress block says that we made this clsact; no packet enters it."""
INNER_QUANTUM_BYTES = 60_000
"""Of classes that are no leaves: without meaning there, but the kernel logs a guess of its own."""
_ETHERNET = 1
"""Link layer: the kernel needs no table of rates with it."""
_HTB_VERSION, _RATE_TO_QUANTUM = 3, 10
_NEW_LINK, _DEL_LINK, _SET_LINK = 16, 17, 19
_NEW_QDISC, _DEL_QDISC, _NEW_CLASS, _DEL_CLASS = 36, 37, 40, 41
_NEW_FILTER, _DEL_FILTER, _NEW_CHAIN, _DEL_CHAIN = 44, 45, 100, 101
_CREATE = NLM_F_CREATE | NLM_F_EXCL
_PUT = NLM_F_CREATE | NLM_F_REPLACE
_U32 = (1 << 32) - 1
_MOST_MEMORY_BYTES = 1 << 31
"""What fq_codel itself cuts its limit to."""
_ALL_PROTOCOLS = socket.htons(3)
_STOLEN = 4


class _BfifoOptions(nla):  # type: ignore[misc]  # pyroute2 has no types
    fields = (("limit", "I"),)


coders.plugins.setdefault("bfifo", types.SimpleNamespace(options=_BfifoOptions))


class _TcMessage(coders.tcmsg):  # type: ignore[misc]  # pyroute2 has no types
    """With the attributes that the library's own ends before."""

    nla_map = (
        *coders.tcmsg.nla_map,
        ("TCA_PAD", "hex"), ("TCA_DUMP_INVISIBLE", "flag"), ("TCA_CHAIN", "uint32"),
    )  # fmt: skip


class Writer:
    """One netlink socket; from `opened`."""

    def __init__(self, socket_: Any) -> None:
        self._socket = socket_

    # ------------------------------------------------------------------ ifb

    async def make_ifb(self, name: str, queue_packets: int) -> None:
        """Create an ifb, down."""
        message = ifinfmsg()
        message["attrs"] = [
            ["IFLA_IFNAME", name], ["IFLA_TXQLEN", queue_packets],
            ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "ifb"]]}],
        ]  # fmt: skip
        await self._send(message, _NEW_LINK, _CREATE)

    async def set_link(
        self, index: int, *, up: bool = False, queue_packets: int = 0, mtu_bytes: int = 0
    ) -> None:
        """Change a device; what is 0 stays as it is."""
        message = _link(index)
        if up:
            message["flags"] = message["change"] = 1
        if queue_packets:
            message["attrs"].append(["IFLA_TXQLEN", queue_packets])
        if mtu_bytes:
            message["attrs"].append(["IFLA_MTU", mtu_bytes])
        await self._send(message, _NEW_LINK, 0)

    async def set_gso(self, index: int, size_bytes: int, segments: int) -> None:
        """Largest packet that a device takes uncut."""
        message = _link(index)
        message["attrs"] = [["IFLA_GSO_MAX_SIZE", size_bytes], ["IFLA_GSO_MAX_SEGS", segments]]
        await self._send(message, _NEW_LINK, 0)

    async def silence(self, index: int) -> None:
        """Let the device have no IPv6 address of its own, and so no neighbour traffic."""
        message = _link(index)
        mode = ["IFLA_INET6_ADDR_GEN_MODE", 1]
        message["attrs"] = [["IFLA_AF_SPEC", {"attrs": [["AF_INET6", {"attrs": [mode]}]]}]]
        await self._send(message, _SET_LINK, 0)

    async def delete_link(self, index: int) -> None:
        """Delete a device."""
        await self._send(_link(index), _DEL_LINK, 0)

    # ------------------------------------------------------------------ HTB

    async def make_htb(self, index: int, default_minor: int) -> None:
        """Our HTB as root qdisc; EEXIST unless the root is the kernel's default."""
        initial = {
            "version": _HTB_VERSION, "rate2quantum": _RATE_TO_QUANTUM, "defcls": default_minor,
            "debug": 0, "direct_pkts": 0,
        }  # fmt: skip
        message = _message(index, ROOT, HANDLE, "htb")
        message["attrs"].append(["TCA_OPTIONS", {"attrs": [["TCA_HTB_INIT", initial]]}])
        await self._send(message, _NEW_QDISC, _CREATE)

    async def delete_qdisc(self, index: int, parent: int) -> None:
        """Delete what stands at a place."""
        await self._send(_message(index, parent, 0, ""), _DEL_QDISC, 0)

    async def put_class(self, index: int, wanted: ShapeClass) -> None:
        """Add a class or change the one of that minor; flows go on."""
        rate, ceil = wanted.rate_bytes_per_second, wanted.ceil_bytes_per_second
        parameters = {
            "rate": min(rate, _U32), "ceil": min(ceil, _U32),
            "rate___reserved": _ETHERNET, "ceil___reserved": _ETHERNET,
            "buffer": ticks(wanted.burst_bytes, rate), "cbuffer": ticks(wanted.cburst_bytes, ceil),
            "quantum": wanted.quantum_bytes or INNER_QUANTUM_BYTES, "prio": 0,
        }
        options = {"attrs": [
            ["TCA_HTB_PARMS", parameters], ["TCA_HTB_RATE64", rate], ["TCA_HTB_CEIL64", ceil],
        ]}  # fmt: skip
        parent = HANDLE | wanted.parent if wanted.parent else HANDLE
        message = _message(index, parent, HANDLE | wanted.minor, "htb")
        message["attrs"].append(["TCA_OPTIONS", options])
        await self._send(message, _NEW_CLASS, _PUT)

    async def delete_class(self, index: int, minor: int) -> None:
        """Delete a class with its leaf; EBUSY while it has children."""
        await self._send(_message(index, 0, HANDLE | minor, ""), _DEL_CLASS, 0)

    async def put_leaf(self, index: int, minor: int, kind: str, limit_bytes: int) -> bool:
        """Queue of a leaf, made or changed; a queue of another kind is replaced. False: unknown kind.

        One longer than the kind can be is made as long as it can be, and so reads back as shorter.
        """
        options: Any = {"limit": min(limit_bytes, _U32)}
        if kind == "fq_codel":
            memory_bytes = min(limit_bytes * FQ_CODEL_MEMORY, _MOST_MEMORY_BYTES)
            options = {"attrs": [["TCA_FQ_CODEL_MEMORY_LIMIT", memory_bytes]]}
        message = _message(index, HANDLE | minor, 0, kind)
        message["attrs"].append(["TCA_OPTIONS", options])
        try:
            await self._send(message, _NEW_QDISC, _PUT)
        except NetlinkError as error:
            if error.code != errno.ENOENT:
                raise
            return False
        return True

    # ------------------------------------------------------------------ clsact

    async def make_clsact(self, index: int) -> None:
        """Add clsact and the mark that it is ours; EEXIST where clsact or ingress stands."""
        message = _message(index, INGRESS_SLOT, INGRESS_SLOT & 0xFFFF0000, "clsact")
        await self._send(message, _NEW_QDISC, _CREATE)
        # Kernels before 4.19 have no chains: such a clsact stays where it is.
        with contextlib.suppress(NetlinkError):
            await self._chain(_NEW_CHAIN, _CREATE, index)

    async def disown_clsact(self, index: int) -> None:
        """Take away the mark that a clsact is ours."""
        await self._chain(_DEL_CHAIN, 0, index)

    async def put_filter(self, index: int, handle: int, program: int, target_index: int) -> None:
        """Our filter in the last place; what has this handle there is replaced in one step."""
        redirect = {"action": _STOLEN, "eaction": 1, "ifindex": target_index}
        action = {"attrs": [
            ["TCA_ACT_KIND", "mirred"],
            ["TCA_ACT_OPTIONS", {"attrs": [["TCA_MIRRED_PARMS", redirect]]}],
        ]}  # fmt: skip
        message = _message(index, EGRESS, handle, "bpf", PREFERENCE << 16 | _ALL_PROTOCOLS)
        message["attrs"].append(["TCA_OPTIONS", {"attrs": [
            ["TCA_BPF_ACT", {"attrs": [["TCA_ACT_PRIO_1", action]]}],
            ["TCA_BPF_FD", program], ["TCA_BPF_NAME", FILTER_NAME], ["TCA_BPF_FLAGS", 0],
        ]}])  # fmt: skip
        await self._send(message, _NEW_FILTER, _PUT)

    async def delete_filter(self, index: int, info: int, handle: int, chain: int = 0) -> None:
        """Delete one bpf filter of clsact egress by its place."""
        message = _message(index, EGRESS, handle, "bpf", info)
        if chain:
            message["attrs"].append(["TCA_CHAIN", chain])
        await self._send(message, _DEL_FILTER, 0)

    # ------------------------------------------------------------------ messages

    async def _chain(self, type_: int, flags: int, index: int) -> None:
        message = _message(index, EGRESS, 0, "")
        message["attrs"].append(["TCA_CHAIN", CLSACT_CHAIN])
        await self._send(message, type_, flags)

    async def _send(self, message: Any, type_: int, flags: int) -> None:
        async for _ in await self._socket.nlm_request(message, type_, NLM_F_REQUEST | NLM_F_ACK | flags):
            pass


def _link(index: int) -> Any:
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = []
    return message


def _message(index: int, parent: int, handle: int, kind: str, info: int = 0) -> Any:
    message = _TcMessage()
    message.update(index=index, parent=parent, handle=handle, info=info)
    message["attrs"] = [["TCA_KIND", kind]] if kind else []
    return message


@contextlib.asynccontextmanager
async def opened(op: str, target: str) -> AsyncIterator[Writer]:
    """A writer with a deadline; what fails inside is a DriverError of this op and target."""
    try:
        async with attempt(op, target, DEADLINE_SECONDS), AsyncIPRoute() as connection:
            yield Writer(connection)
    except struct.error as error:
        raise DriverError(ErrorKind.INVALID, target, op, f"a number is too large for it: {error}") from error
