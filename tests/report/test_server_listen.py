"""How the listeners are opened and closed: modes, stale files, taken ports, who owns what."""

from __future__ import annotations

import asyncio
import grp
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from nodeagent.report.server import ServerLimits, StatusServer
from tests.report.serving import FakeSurface, Served, parse, read_all, running


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: a socket's is limited to 107 bytes."""
    return tmp_path_factory.mktemp("s") / "run" / "a.sock"


def _server(path: Path, **more: object) -> StatusServer:
    return StatusServer(FakeSurface(), socket_path=str(path), **more)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _get(port: int, target: str) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return parse(read_all(client))[0]


def _health(path: Path) -> int:
    return Served(path, FakeSurface(), _server(path), []).ask("GET", "/health")[0]


def test_the_socket_is_for_owner_and_group_only(path: Path) -> None:
    """Mode 0660, whatever the umask, in a folder that is made when missing."""
    before = os.umask(0)
    try:
        with running(_server(path)) as problems:
            assert problems == ()
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            assert _health(path) == 200
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: sudo make test")
def test_the_socket_belongs_to_the_group_when_it_exists(path: Path) -> None:
    """Members of the group may ask without being root."""
    group = next(entry for entry in grp.getgrall() if entry.gr_gid != 0)

    with running(_server(path, group=group.gr_name)):
        assert path.stat().st_gid == group.gr_gid


def test_a_missing_group_is_no_problem(path: Path) -> None:
    """Without the group the socket is root's alone."""
    with running(_server(path, group="no-such-group-here")) as problems:
        assert problems == ()
        assert path.stat().st_gid == os.getgid()


def test_a_stale_socket_is_replaced(path: Path) -> None:
    """The file that a killed agent left behind does not stand in the way."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    with running(_server(path)) as problems:
        assert problems == ()
        assert _health(path) == 200


def test_a_socket_that_somebody_answers_on_is_left_alone(path: Path) -> None:
    """A second agent reports the first and takes nothing from it."""
    with running(_server(path)):
        inode = path.stat().st_ino
        with running(_server(path)) as problems:
            assert [(problem.listener, problem.busy) for problem in problems] == [("socket", True)]
            assert "another process answers" in problems[0].sentence

        assert path.stat().st_ino == inode
        assert _health(path) == 200


def test_a_full_backlog_counts_as_an_answer(path: Path) -> None:
    """A listener too busy to accept is alive."""
    path.parent.mkdir()
    clients = []
    with socket.socket(socket.AF_UNIX) as slow:
        slow.bind(str(path))
        slow.listen(0)
        for _ in range(2):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            clients.append(client)
            client.connect_ex(str(path))
        with running(_server(path)) as problems:
            assert [problem.busy for problem in problems] == [True]
        for client in clients:
            client.close()

        assert path.exists()


def test_a_file_that_is_no_socket_is_never_removed(path: Path) -> None:
    """A mistyped path must not cost a file."""
    path.parent.mkdir()
    path.write_text("precious")

    with running(_server(path)) as problems:
        assert "is no socket" in problems[0].sentence
    assert path.read_text() == "precious"


def test_a_path_that_cannot_be_bound_is_reported(tmp_path: Path) -> None:
    """A missing parent of the folder is a sentence, and the agent goes on."""
    with running(_server(tmp_path / "no" / "such" / "a.sock")) as problems:
        assert [problem.sentence for problem in problems] == ["cannot listen: No such file or directory"]


def test_the_socket_is_removed_at_stop(path: Path) -> None:
    """A stopped agent leaves no file that looks alive."""
    with running(_server(path)):
        assert path.exists()

    assert not path.exists()


def test_a_socket_of_another_is_not_removed_at_stop(path: Path) -> None:
    """What replaced our file belongs to somebody else."""
    with socket.socket(socket.AF_UNIX) as other:
        with running(_server(path)):
            path.unlink()
            other.bind(str(path))

        assert path.exists()


def test_stop_ends_open_connections(path: Path) -> None:
    """A peer that holds a connection does not hold up the agent's stop."""
    server = _server(path, limits=ServerLimits(request_seconds=3600))
    with running(server):
        client = Served(path, FakeSurface(), server, []).connect()
        client.sendall(b"GET /hea")
        while server.connection_count == 0:
            threading.Event().wait(0.01)

    with client:
        assert read_all(client) == b""


def test_tcp_serves_probes_and_metrics_only(path: Path) -> None:
    """Commands and status never leave the unix socket."""
    port = _free_port()

    with running(_server(path, metrics_listen=f"127.0.0.1:{port}")) as problems:
        assert problems == ()
        assert [_get(port, target) for target in ("/metrics", "/health", "/ready")] == [200, 200, 200]
        assert [_get(port, target) for target in ("/v1/status", "/v1/gpu/release")] == [404, 404]


def test_a_taken_port_is_a_reported_problem(path: Path) -> None:
    """Without its port the agent still answers on the socket, and tries again when told to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        with running(_server(path, metrics_listen=address)) as problems:
            assert [(problem.listener, problem.address, problem.busy) for problem in problems] == [
                ("metrics", address, True)
            ]
            assert "the port is taken" in problems[0].sentence
            assert _health(path) == 200


def test_a_port_that_has_become_free_is_opened_by_the_next_attempt(path: Path) -> None:
    """Starting once more opens what was missing and leaves alone what is open."""

    async def main() -> None:
        server = _server(path, metrics_listen=address)
        first = await server.start()
        holder.close()
        second = await server.start()
        found = await asyncio.to_thread(_get, int(address.rpartition(":")[2]), "/health")
        inode = path.stat().st_ino
        third = await server.start()
        assert ([p.listener for p in first], second, third, found) == (["metrics"], (), (), 200)
        assert path.stat().st_ino == inode
        await server.stop()

    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        asyncio.run(main())


def test_a_socket_whose_file_was_removed_is_bound_again_by_the_next_attempt(path: Path) -> None:
    """A clean-up of /run cannot cut the agent off for good; somebody else's file is left alone."""

    async def main() -> None:
        server = _server(path)
        await server.start()
        path.unlink()
        assert await server.start() == ()
        assert await asyncio.to_thread(_health, path) == 200
        path.unlink()
        path.write_text("precious")
        assert [p.listener for p in await server.start()] == ["socket"]
        await server.stop()

    asyncio.run(main())

    assert path.read_text() == "precious"


@pytest.mark.parametrize("address", ["203.0.113.9:9469", "nonsense", "a..b:80"])
def test_an_address_that_is_not_ours_is_a_reported_problem(path: Path, address: str) -> None:
    """Whatever the resolver or the kernel says becomes a sentence."""
    with running(_server(path, metrics_listen=address)) as problems:
        assert [(problem.listener, problem.busy) for problem in problems] == [("metrics", False)]
        assert _health(path) == 200
