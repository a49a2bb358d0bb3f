"""The shipped unit under a real systemd: start, status, journal, reload, watchdog, stop.

One machine is booted for the whole file; the tests run in the order in which they stand, as a day of the
service would: it starts, is asked, is reloaded, hangs, is stopped.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.report.events import CATALOGUE
from tests.systemd.machine import REPOSITORY, Machine, booted, missing_parts, wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(missing_parts()), reason=missing_parts() or "complete"),
]
UNIT = "nodeagent.service"
BAD_FRAGMENT = "/etc/nodeagent/conf.d/99-bad.toml"
KUBELET = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

HTTPServer(("127.0.0.1", 10248), Healthy).serve_forever()
"""
ASK_AS_NOBODY = """
import grp, os, socket, sys

os.setgroups([])
os.setgid(grp.getgrnam(sys.argv[1]).gr_gid)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as client:
    try:
        client.connect("/run/nodeagent/status.sock")
    except PermissionError:
        sys.exit(print("refused"))
    client.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: node\\r\\n\\r\\n")
    print(client.recv(4096).decode())
"""
UPLINK = """
ip link add up0 type veth peer name far0
ip address add 10.9.0.2/24 dev up0
ip link set up0 up
ip link set far0 up
ip route add default via 10.9.0.1
"""
POD_ADDRESS = "10.244.7.7"
PODS = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [{
    "metadata": {"namespace": "team", "name": "a", "uid": "5b0c0d4e-0000-4000-8000-000000000001"},
    "spec": {}, "status": {"phase": "Running", "podIPs": [{"ip": POD_ADDRESS}]},
}]})  # fmt: skip
FETCH = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which nodeagent was installed and started as the README says, beside a healthy kubelet."""
    with booted(Path(sys.prefix), tmp_path_factory.mktemp("machine")) as made:
        made.run("env", "VENV=no", f"{REPOSITORY}/systemd/install.sh")
        made.write("/etc/fake-kubelet.py", KUBELET)
        made.run("systemd-run", "--unit=fake-kubelet", sys.executable, "/etc/fake-kubelet.py")
        made.run("systemctl", "enable", "--now", "nodeagent", check=False, timeout_seconds=60)
        yield made


def _status(machine: Machine) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(machine.run("nodeagent", "status", "--json", check=False).stdout)
    return shown


def _entries(machine: Machine, event: str) -> list[dict[str, Any]]:
    machine.run("journalctl", "--sync")
    wanted = f"MESSAGE_ID={CATALOGUE[event].message_id}"
    lines = machine.run("journalctl", "--output=json", "-t", "nodeagent", wanted, check=False).stdout
    return [json.loads(line) for line in lines.splitlines()]


def _log(machine: Machine) -> str:
    return machine.run("journalctl", "--no-pager", "-u", UNIT).stdout


def _main_pid(machine: Machine) -> str:
    return machine.unit_property(UNIT, "MainPID")


def _pids(machine: Machine) -> list[str]:
    group = f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs"
    return machine.run("cat", group, check=False).stdout.split()


def test_unit_becomes_ready(machine: Machine) -> None:
    """systemd has seen READY=1: the unit is active, not merely started."""
    assert machine.unit_property(UNIT, "ActiveState") == "active", _log(machine)
    assert machine.unit_property(UNIT, "StatusErrno") == "0"


def test_status_line_is_the_headline(machine: Machine) -> None:
    """`systemctl status` answers with the node's state in words, at the latest one cycle after the start."""
    words = {"OK", "WARNING", "CRITICAL"}
    wait_until(
        lambda: machine.unit_property(UNIT, "StatusText").split(" ")[0] in words, 20, "a state as status line"
    )

    assert (
        machine.unit_property(UNIT, "StatusText").split(" ")[0].lower()
        == _status(machine)["verdict"]["state"]
    )


def test_no_host_check_is_refused_by_the_sandbox(machine: Machine) -> None:
    """Each host check reads its value inside the hardened unit; none is unknown or was denied."""
    rows = _status(machine)["rows"]
    judged = {row["id"]: row for row in rows if row["target"] == "node" or row["id"].startswith("disk.")}

    assert {"disk.full", "clock.unsynced", "kubelet.down", "agent.state"} <= judged.keys()
    assert [row for row in rows if row["state"] == "unknown"] == []
    assert [row for row in rows if "denied" in str(row) or "not permitted" in str(row)] == []


def test_disks_are_judged_although_the_sandbox_is_read_only(machine: Machine) -> None:
    """ProtectSystem makes every mount read-only for the agent; the root is judged all the same."""
    (root,) = [row for row in _status(machine)["rows"] if (row["id"], row["target"]) == ("disk.full", "/")]

    assert root["state"] in {"ok", "pending", "warning", "critical"}


def test_healthy_kubelet_is_seen_through_the_address_filter(machine: Machine) -> None:
    """The kubelet's health endpoint on loopback is reached."""
    (kubelet,) = [row for row in _status(machine)["rows"] if row["id"] == "kubelet.down"]

    assert kubelet["state"] == "ok"


def test_kernel_log_is_read_since_boot(machine: Machine) -> None:
    """/dev/kmsg is open to the unit, and everything since boot was read."""
    kernel_log = _status(machine)["kernel_log"]

    assert kernel_log["backfilled"] is True
    assert kernel_log["records"] > 0


def test_metrics_page_answers_on_loopback(machine: Machine) -> None:
    """The metrics page is served where the default configuration says."""
    page = machine.run(sys.executable, "-c", FETCH, "http://127.0.0.1:9469/metrics").stdout

    assert "nodeagent_build_info" in page


CAPABILITIES = 1 << 34 | 1 << 12 | 1 << 13 | 1 << 39 | 1 << 19
"""CAP_SYSLOG, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_SYS_PTRACE."""


def test_processes_hold_these_capabilities_and_no_more(machine: Machine) -> None:
    """Daemon and workers keep what the unit names, gain nothing, and run under the system call filter."""
    pids = _pids(machine)
    assert len(pids) >= 2
    for pid in pids:
        lines = machine.run("cat", f"/proc/{pid}/status").stdout.splitlines()
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

        assert int(fields["CapBnd"], 16) == CAPABILITIES
        assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize(("group", "answer"), [("nodeagent", "HTTP/1.1 200"), ("nogroup", "refused")])
def test_socket_answers_the_group_and_nobody_else(machine: Machine, group: str, answer: str) -> None:
    """A user of the group nodeagent may ask; any other is refused by the file system."""
    asked = machine.run(sys.executable, "-c", ASK_AS_NOBODY, group)

    assert asked.stdout.startswith(answer)


def test_start_is_in_the_journal_with_fields_and_text(machine: Machine) -> None:
    """`journalctl -t nodeagent` finds the event by its id, and -x explains it with the next command."""
    (ready,) = _entries(machine, "ready")
    explained = machine.run(
        "journalctl", "-x", "--no-pager", f"MESSAGE_ID={CATALOGUE['ready'].message_id}"
    ).stdout

    assert (ready["NODEAGENT_EVENT"], ready["PRIORITY"], ready["_SYSTEMD_UNIT"]) == ("ready", "6", UNIT)
    assert CATALOGUE["ready"].meaning[:40] in explained
    assert "First steps:" in explained
    assert "@" not in explained


def test_second_agent_names_the_first(machine: Machine) -> None:
    """A second `nodeagent run` on the node ends with 69 and says which process holds it."""
    second = machine.run("nodeagent", "run", check=False)

    assert second.returncode == 69
    assert _main_pid(machine) in second.stderr


def test_reload_of_a_bad_file_keeps_the_good_configuration(machine: Machine) -> None:
    """The process goes on as it was, and the journal names file and key."""
    before = _main_pid(machine)
    machine.write(BAD_FRAGMENT, "[gpu]\nexpectd_count = 8\n")
    machine.run("systemctl", "reload", "nodeagent")
    wait_until(lambda: bool(_entries(machine, "config_rejected")), 20, "config_rejected in the journal")

    (rejected,) = _entries(machine, "config_rejected")
    assert "expectd_count" in rejected["MESSAGE"]
    assert (_main_pid(machine), machine.unit_property(UNIT, "ActiveState")) == (before, "active")


def test_start_with_a_bad_file_ends_with_78_and_is_not_tried_again(machine: Machine) -> None:
    """A restart cannot cure a bad file, so systemd leaves it and shows the status."""
    machine.run("systemctl", "restart", "nodeagent", check=False)
    shown = [machine.unit_property(UNIT, name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")]
    machine.run("rm", BAD_FRAGMENT)

    assert shown == ["failed", "78", "0"]


def test_hung_loop_is_restarted_by_the_watchdog(machine: Machine) -> None:
    """A process that no longer pings is ended and started anew, and the status is back."""
    shorter = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=2s\nRestartSec=100ms\n"
    machine.write(f"/etc/systemd/system/{UNIT}.d/shorter.conf", shorter)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "nodeagent", timeout_seconds=60)
    hung = _main_pid(machine)
    machine.run("kill", "-STOP", hung)

    wait_until(lambda: machine.unit_property(UNIT, "NRestarts") == "1", 20, "one restart")
    wait_until(lambda: machine.unit_property(UNIT, "ActiveState") == "active", 30, "active again")
    assert _main_pid(machine) != hung
    log = _log(machine)
    assert "Watchdog timeout" in log
    assert "Fatal Python error: Aborted" in log, "the stack of the hung loop is missing"


BUDGET = '[network]\ninternet_budget = "1G"\n'


def _shaper(machine: Machine) -> str:
    """The filter on the uplink and the classes, as tc shows them."""
    filters = machine.run("tc", "filter", "show", "dev", "up0", "egress", check=False).stdout
    return filters + machine.run("tc", "class", "show", "dev", "nodeagent0", check=False).stdout


def test_pods_are_marked_and_shaped_inside_the_sandbox(machine: Machine) -> None:
    """A pod list appears while the unit runs: rules, sets, filter, classes are there; nothing was refused."""
    machine.run("sh", "-ec", UPLINK)
    machine.write("/etc/nodeagent/conf.d/60-budget.toml", BUDGET)
    machine.run("systemctl", "reload", "nodeagent", timeout_seconds=60)
    machine.write("/etc/nodeagent/pods.json", PODS)
    wait_until(
        lambda: POD_ADDRESS in machine.run("ipset", "save", check=False).stdout
        and "NODEAGENT-EGRESS" in machine.run("iptables-nft", "-t", "mangle", "-S").stdout,
        30, "the pod's entry and the rules",
    )
    wait_until(lambda: "nodeagent_prio" in _shaper(machine), 30, "the filter")
    wait_until(lambda: "4e:10" in _shaper(machine), 30, "the pod's class")
    rows = {row["id"]: row for row in _status(machine)["rows"]}

    assert rows["network.drift"]["state"] == "ok", rows["network.drift"]
    assert rows["network.shaper"]["state"] == "ok", rows["network.shaper"]
    assert "denied" not in _log(machine)
    machine.run("rm", "/etc/nodeagent/pods.json", "/etc/nodeagent/conf.d/60-budget.toml")


def test_stop_leaves_no_process_and_no_socket(machine: Machine) -> None:
    """A stop is clean: exit 0, the last event in the journal, nothing left running."""
    machine.run("systemctl", "stop", "nodeagent", timeout_seconds=60)

    assert _pids(machine) == []
    assert machine.run("pgrep", "-f", "nodeagent.drivers", check=False).stdout == ""
    assert machine.run("ls", "-A", "/run/nodeagent", check=False).stdout == ""
    assert machine.unit_property(UNIT, "Result") == "success"
    assert machine.unit_property(UNIT, "ExecMainStatus") == "0"
    assert _entries(machine, "stopping")[-1]["MESSAGE"] == "Stopping: SIGTERM"


def test_uninstall_leaves_the_machine_as_it_was(machine: Machine) -> None:
    """Unit, command, catalog, rules, classes and runtime directory are gone; the memory is kept and named."""
    assert "nodeagent_prio" in _shaper(machine), "the stop left the shaper"
    done = machine.run("env", "VENV=no", f"{REPOSITORY}/systemd/uninstall.sh")

    assert machine.unit_property(UNIT, "LoadState") == "not-found"
    assert machine.run("ls", "/run/nodeagent", "/usr/local/bin/nodeagent", check=False).stdout == ""
    assert machine.run("nodeagent", "version", check=False).returncode == 127
    assert "/var/lib/nodeagent" in done.stdout
    assert _shaper(machine) == ""
    assert "NODEAGENT" not in machine.run("iptables-nft", "-t", "mangle", "-S").stdout
    assert "nodeagent-" not in machine.run("ipset", "list", "-n").stdout
