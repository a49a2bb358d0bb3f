"""Links read from a real kernel: uplinks, prefixes, own addresses, and the host side of each pod."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent import rtnetlink
from nodeagent.drivers.links import LinkEvents, LinkReader, read
from nodeagent.errors import DriverError, ErrorKind
from nodeagent.traffic import LinkState
from tests.drivers.rig import check_leaks, until
from tests.netns.world import POD_A, POD_B, World

OWNERS = {POD_A[4]: "a", POD_A[6]: "a", POD_B[4]: "b", POD_B[6]: "b"}
BRIDGED = ("10.244.9.5", "fd00:244:9::5")


def links(world: World, owners: dict[str, str] = OWNERS, uplinks: tuple[str, ...] = ("auto",)) -> LinkState:
    """What the node's links are now."""
    return world.inside("node", LinkReader().read, owners, uplinks)


def uplinks(world: World, *configured: str) -> list[str]:
    """Names of the uplinks."""
    return [link.name for link in links(world, {}, configured or ("auto",)).uplinks]


def pod_devices(world: World, owners: dict[str, str] = OWNERS) -> dict[str, str]:
    """Pod address -> device."""
    return {link.address: link.name for link in links(world, owners).pod_links}


def ip(world: World, *commands: str) -> None:
    """Run `ip` commands on the node."""
    for command in commands:
        world.command("node", "ip", *command.split())


def test_the_node_is_seen_as_it_is(world: World) -> None:
    """Uplink, on-link prefixes, own addresses and the pods' devices, in both families."""
    state = links(world)

    assert [(link.name, link.operational, link.mtu) for link in state.uplinks] == [("eth0", True, 1500)]
    assert {"10.0.0.0/24", "fd00:a::/64"} <= set(state.on_link_prefixes)
    assert "10.244.2.0/24" not in state.on_link_prefixes
    assert set(state.own_addresses) == {"10.0.0.2", "fd00:a::2", "10.244.1.1"}
    assert {link.address: link.name for link in state.pod_links} == {
        POD_A[4]: "vetha", POD_A[6]: "vetha", POD_B[4]: "vethb", POD_B[6]: "vethb",
    }  # fmt: skip


def test_counters_are_the_devices_own(world: World) -> None:
    """What a pod sends the host side receives: 5 datagrams, 1,028 bytes each from the IP header on."""
    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            for _ in range(5):
                connection.sendto(bytes(1000), ("10.0.0.2", 9))

    def received() -> dict[str, int]:
        return {link.address: link.rx_bytes for link in links(world).pod_links}

    before = received()
    world.inside("pod-a", send)
    grown = {address: count - before[address] for address, count in received().items()}

    assert 5 * 1028 <= grown[POD_A[4]] <= 5 * 1028 + 300  # neighbour discovery
    assert grown[POD_B[4]] < 300


def test_every_device_with_a_default_route_is_an_uplink(make_world: Callable[..., World]) -> None:
    """Two uplinks; a configured list replaces them, "auto" beside names adds to them."""
    world = make_world(second_uplink=True)

    assert uplinks(world) == ["eth0", "eth1"]
    assert uplinks(world, "eth1") == ["eth1"]
    assert uplinks(world, "auto", "vetha") == ["eth0", "eth1", "vetha"]
    assert uplinks(world, "none0") == []


def test_one_family_alone_makes_an_uplink(make_world: Callable[..., World]) -> None:
    """An uplink of IPv6 only, and one of a multipath route, are found."""
    world = make_world(second_uplink=True)
    ip(world, "-4 route del default dev eth1", "-4 route del default dev eth0",
       "-6 route del default dev eth0")  # fmt: skip
    alone = uplinks(world)
    ip(world, "-6 route del default dev eth1",
       "route add default nexthop via 10.0.0.1 dev eth0 nexthop via 10.0.1.1 dev eth1")  # fmt: skip

    assert alone == ["eth1"]
    assert uplinks(world) == ["eth0", "eth1"]


def test_default_routes_of_virtual_devices_in_other_tables_do_not_count(world: World) -> None:
    """A CNI's veth, a VPN's tunnel and a blackhole in other tables, and halves of the internet: no uplink."""
    ip(world, "tuntap add tun0 mode tun", "link set tun0 up", "route add default dev tun0 table 52",
       "route add default dev vetha table 2005", "route add blackhole default table 53",
       "route add 0.0.0.0/1 dev tun0", "route add 128.0.0.0/1 dev tun0")  # fmt: skip

    state = links(world)

    assert [link.name for link in state.uplinks] == ["eth0"]
    assert not [prefix for prefix in state.on_link_prefixes if prefix.endswith("/1")]


@pytest.mark.parametrize(
    ("table", "kind", "counts"),
    [(254, "", True), (254, "veth", True), (254, "wireguard", True), (7, "", True), (7, "vlan", True),
     (7, "bond", True), (7, "veth", False), (7, "wireguard", False), (7, "tun", False)],
)  # fmt: skip
def test_outside_the_main_table_the_kind_of_device_decides(table: int, kind: str, counts: bool) -> None:
    """A second cloud interface has its default route in a table of its own, and so have VPNs."""
    device = read.Device(3, "dev3", kind, 1500, True, 0, 0)
    route = read.Route(table, "", False, False, (3,), True)

    assert read.chosen_uplinks({3: device}, [route], ("auto",)) == ({3} if counts else set())


def test_a_link_that_is_down_is_not_operational(world: World) -> None:
    """A configured uplink stays listed when it is down."""
    ip(world, "link set eth0 down")

    assert [(link.name, link.operational) for link in links(world, uplinks=("eth0",)).uplinks] == [
        ("eth0", False)
    ]


def test_a_pod_behind_a_bridge_is_found_by_its_neighbour_entry(world: World) -> None:
    """The bridge's counters are all pods'; the port that has learned the pod's MAC is the pod's."""
    ip(world, "link add cni0 type bridge", "link set cni0 up", "addr add 10.244.9.1/24 dev cni0",
       "link add vethc type veth peer name podc", "link set vethc master cni0 up", "link set podc up",
       "link set podc address 02:00:00:00:00:05",
       "neigh add 10.244.9.5 lladdr 02:00:00:00:00:05 dev cni0 nud permanent",
       "neigh add 10.244.9.6 lladdr 02:00:00:00:00:06 dev cni0 nud permanent")  # fmt: skip
    world.command("node", "bridge", "fdb", "replace", "02:00:00:00:00:05", "dev", "vethc", "master")

    found = pod_devices(world, {**OWNERS, "10.244.9.5": "c", "10.244.9.6": "unlearned", "10.244.9.7": "no"})

    assert found["10.244.9.5"] == "vethc"
    assert "10.244.9.6" not in found and "10.244.9.7" not in found


def test_a_device_of_two_pods_is_nobodys(world: World) -> None:
    """Two pods routed to one device: neither gets its counters."""
    ip(world, f"route replace {POD_B[4]}/32 dev vetha")

    found = pod_devices(world)

    assert found == {POD_B[6]: "vethb"}


def test_an_address_behind_the_uplink_or_a_gateway_has_no_link(world: World) -> None:
    """Host routes to an uplink, or by a gateway, lead to other nodes."""
    ip(world, "route add 10.0.0.99/32 dev eth0", "route add 10.0.0.98/32 via 10.244.1.10 dev vetha onlink")

    assert pod_devices(world, {"10.0.0.99": "x", "10.0.0.98": "y"}) == {}


def test_the_host_is_known_by_its_namespace(world: World, tmp_path: Path) -> None:
    """Pid 1's network namespace equal to our own is the host; another or an unreadable one is not."""
    def seen(target: str | None) -> bool:
        place = tmp_path / f"proc{len(list(tmp_path.iterdir()))}/1/ns"
        place.mkdir(parents=True)
        if target is not None:
            (place / "net").symlink_to(target)
        return LinkReader(str(place.parent.parent)).in_host_namespace()

    assert seen(os.readlink("/proc/self/ns/net"))  # noqa: PTH115 - the text, not a path
    assert [seen("net:[1]"), seen(None)] == [False, False]
    assert not links(world).host_namespace


WITHOUT_TRACING = """
import sys
from nodeagent.drivers.links import LinkReader

print(LinkReader().in_host_namespace())
"""


@pytest.mark.parametrize(("inside", "answer"), [(False, "True"), (True, "False")])
def test_the_host_is_known_without_the_right_to_trace_it(world: World, inside: bool, answer: str) -> None:
    """Under the unit's capabilities pid 1's namespace link is refused, and the answer is still right."""
    command = ["setpriv", "--bounding-set=-all,+syslog,+net_admin", sys.executable, "-c", WITHOUT_TRACING]
    argv = world.argv("node", *command) if inside else command
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.strip() == answer


# --------------------------------------------------------------------------- events


EVENTS = [
    "link add veth9 type veth peer name pod9", "link set vetha down", "addr add 10.9.9.9/32 dev lo",
    "addr add fd00:9::9/128 dev lo", "route add 10.9.0.0/16 dev vetha", "route add fd00:99::/64 dev vetha",
]  # fmt: skip


@pytest.mark.parametrize("command", EVENTS)
def test_each_kind_of_change_is_heard(world: World, command: str) -> None:
    """Link, address and route changes of both families wake the listener."""
    async def whole() -> int:
        heard: list[int] = []
        events = LinkEvents(lambda: heard.append(1))
        events.start()
        process = await asyncio.create_subprocess_exec("ip", *command.split())
        await process.wait()
        await until(lambda: heard, seconds=5)
        events.close()
        events.close()
        return len(heard)

    assert world.inside("node", whole) >= 1


def test_a_burst_that_overruns_the_socket_is_heard(world: World) -> None:
    """Thousands of events while nobody reads: the lost ones count as heard."""
    def whole() -> list[int]:
        heard: list[int] = []

        async def listen() -> None:
            events = LinkEvents(lambda: heard.append(1))
            events.start()
            routes = (f"10.{n >> 8}.{n & 255}.0/24" for n in range(256, 8000))
            batch = "".join(f"route add {route} dev vetha\n" for route in routes)
            with os.popen("ip -batch -", "w") as pipe:
                pipe.write(batch)
            await until(lambda: heard, seconds=5)
            events.close()

        asyncio.run(listen())
        return heard

    assert world.inside("node", whole)


# --------------------------------------------------------------------------- dumps


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes | OSError]]:
    """What the next receives from the netlink socket return, one after the other."""
    script: list[bytes | OSError] = []

    async def receive(self: object, connection: object, size: int) -> bytes:
        answer = script.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_recv", receive)
    return script


def message(kind: int, flags: int = 2, body: bytes = b"\0\0\0\0") -> bytes:
    """One netlink message."""
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


INTERRUPTED = message(16, 2) + message(3, 2 | 0x10)
WHOLE = message(16) + message(3)


def dumped() -> int:
    """Objects of one dump."""
    return len(asyncio.run(rtnetlink.dump(rtnetlink.GET_LINK, b"\0" * 16)))


def test_an_interrupted_dump_is_read_again(scripted: list[bytes | OSError]) -> None:
    """The mark of interruption may stand on the last message alone; what was read before is not used."""
    scripted += [INTERRUPTED, message(16, 0x12) + message(3), WHOLE]

    assert dumped() == 1
    assert scripted == []


def test_a_dump_that_is_always_interrupted_is_busy(scripted: list[bytes | OSError]) -> None:
    """After five tries the reading fails; a part is never returned."""
    scripted += [INTERRUPTED] * rtnetlink.TRIES

    with pytest.raises(DriverError) as caught:
        dumped()
    assert caught.value.kind is ErrorKind.BUSY


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (message(2, 0, struct.pack("=i", -errno.EPERM)), ErrorKind.DENIED),
        (message(3, 2, struct.pack("=i", -errno.EMSGSIZE)), ErrorKind.INVALID),
        (message(16)[:-1] + message(3), ErrorKind.INVALID),
        (struct.pack("=IHHII", 0, 0, 0, 0, 0), ErrorKind.INVALID),
        (OSError(errno.ENOMEM, "no memory"), ErrorKind.INVALID),
    ],
)
def test_a_failed_dump_is_one_error(
    scripted: list[bytes | OSError], answer: bytes | OSError, kind: ErrorKind
) -> None:
    """Refusals, errors at the end and broken messages never pass for an empty list."""
    scripted.append(answer)

    with pytest.raises(DriverError) as caught:
        dumped()
    assert caught.value.kind is kind


def test_reading_leaves_nothing_open() -> None:
    """Every socket of a read is closed; loopback alone is no uplink."""
    async def whole() -> None:
        for _ in range(3):
            state = await LinkReader().read({"192.0.2.1": "x"})
            assert "lo" not in [link.name for link in state.uplinks]

    check_leaks(whole())
