"""A real etcd and a real kube-apiserver for tests, alone in a capsule; nothing is left of them.

`make kube` builds the programs outside the clone; KUBE_BIN=DIR names ready ones. No controller runs: what
controllers make (the default service account of a namespace, for one) a test makes itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.kube import api, pki
from tests.kube.capsule import Capsule, Program

ROOT = Path(__file__).resolve().parents[2]
PORT = 6443
SERVER = f"https://127.0.0.1:{PORT}"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
READY_SECONDS = 90.0
UNTIL_SECONDS = 30.0
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_FOLDER = "nodeagent-kube-"
_ETCD = "http://127.0.0.1:2379"
_ETCD_PEER = "http://127.0.0.1:2380"

Result = TypeVar("Result")


def binaries() -> Path:
    """The directory of the programs, whether they are there or not."""
    if given := os.environ.get("KUBE_BIN"):
        return Path(given)
    return Path(_build_script("where"))


def _build_script(verb: str) -> str:
    words = [str(ROOT / "scripts" / "kube.sh"), verb]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def missing() -> str:
    """Why no control plane can be started here, with the command that changes it; "" when one can."""
    if os.geteuid() != 0:
        return "needs root: run as root"
    here = binaries()
    if absent := [name for name in _build_script("list").split() if not os.access(here / name, os.X_OK)]:
        return f"needs {', '.join(absent)}: run `make kube`, or name ready programs with KUBE_BIN=DIR"
    return ""


def _remove_left_behind() -> None:
    """Remove the folders of runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


class ControlPlane:
    """etcd and kube-apiserver from `with ControlPlane() as plane:` until its end."""

    def __init__(self, *, flags: Iterable[str] = ()) -> None:
        """`flags`: further ones of kube-apiserver."""
        self._flags = tuple(flags)
        self._stack = contextlib.ExitStack()
        self.start_seconds = 0.0
        """From the start of etcd to a ready API server."""

    def __enter__(self) -> ControlPlane:
        with contextlib.ExitStack() as stack:
            _remove_left_behind()
            self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.pki = pki.Pki(self.folder / "pki")
            admin = self._admin_pair = self.pki.client("admin", "admin", "system:masters")
            self._serving = self.pki.server("apiserver")
            self.kubeconfig = self.folder / "admin.kubeconfig"
            pki.kubeconfig(self.kubeconfig, SERVER, self.pki.ca, pair=admin)
            self._admin = api.Api(PORT, self.pki.ca, pair=admin)
            self.audit_log = self.folder / "audit.log"
            self.capsule = stack.enter_context(Capsule(self.folder))
            began_seconds = time.monotonic()
            self.etcd = self._start_etcd()
            self.start_server()
            self.start_seconds = time.monotonic() - began_seconds
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ programs

    def _start_etcd(self) -> Program:
        return self.capsule.start(
            "etcd", str(binaries() / "etcd"), "--name=here", f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEER}", f"--initial-advertise-peer-urls={_ETCD_PEER}",
            f"--initial-cluster=here={_ETCD_PEER}", "--unsafe-no-fsync", "--log-level=warn",
        )

    def start_server(self) -> None:
        """Start the API server and return when it is ready."""
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        certificate, key = self._serving
        self.server = self.capsule.start(
            "kube-apiserver", str(binaries() / "kube-apiserver"), f"--etcd-servers={_ETCD}",
            "--bind-address=127.0.0.1", f"--secure-port={PORT}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--client-ca-file={self.pki.ca}",
            f"--service-account-key-file={self.pki.accounts_public}",
            f"--service-account-signing-key-file={self.pki.accounts_private}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}", *self._flags,
        )
        self._wait_ready()

    def start_controllers(self, *names: str) -> Program:
        """Start these loops of the controller manager, and no others."""
        return self.capsule.start(
            "kube-controller-manager", str(binaries() / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}", f"--controllers={','.join(names)}", "--leader-elect=false",
            "--secure-port=0",
        )

    def _wait_ready(self) -> None:
        end_seconds = time.monotonic() + READY_SECONDS
        while not self.capsule.inside(self._is_ready):
            for program in (self.etcd, self.server):
                if not program.runs or time.monotonic() > end_seconds:
                    raise AssertionError(f"{program.name} is not ready:\n{program.log()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        with contextlib.suppress(OSError, urllib.error.URLError):
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
            with opener.open(f"{SERVER}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        return False

    # ------------------------------------------------------------------ use

    def admin(self, call: Callable[..., api.Answer], *arguments: Any) -> api.Answer:
        """`plane.admin(Api.post, path, body)`: one request as administrator."""
        return self.capsule.inside(call, self._admin, *arguments)

    def as_token(self, token: str, call: Callable[..., api.Answer], *arguments: Any) -> api.Answer:
        """The same as the owner of a token."""
        return self.capsule.inside(call, api.Api(PORT, self.pki.ca, token=token), *arguments)

    def as_someone(self, headers: Mapping[str, str], call: Callable[..., api.Answer], *arguments: Any,
                   ) -> api.Answer:
        """The same as whom the administrator's Impersonate-* headers name."""
        someone = api.Api(PORT, self.pki.ca, pair=self._admin_pair, headers=headers)
        return self.capsule.inside(call, someone, *arguments)

    def token(self, account: str, namespace: str, **spec: Any) -> str:
        """A token of a service account; `spec`: of the TokenRequest."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600, **spec}}
        path = f"{api.NAMESPACES}/{namespace}/serviceaccounts/{account}/token"
        return str(self.admin(api.Api.post, path, body).expect()["status"]["token"])

    def node_token(self, account: str, node: str, namespace: str = "default", seconds: int = 3600) -> str:
        """A token of a service account that is bound to the Node as it is now."""
        uid = self.admin(api.Api.get, f"{api.NODES}/{node}").expect()["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        return self.token(account, namespace, expirationSeconds=seconds, boundObjectRef=bound)

    def token_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig that logs in with a token."""
        return pki.kubeconfig(path, SERVER, self.pki.ca, token=token)

    def kubectl(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; `text` is its standard input."""
        command = [*self.capsule.prefix(), str(binaries() / "kubectl"), f"--kubeconfig={self.kubeconfig}"]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        return subprocess.run([*command, *words], input=text, capture_output=True, text=True,
                              timeout=60, env=environment, check=False)

    def until(self, condition: Callable[[], Any], seconds: float = UNTIL_SECONDS) -> None:
        """Return when the condition holds; fail when it never does."""
        end_seconds = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end_seconds, f"it never held; the server said:\n{self.server.log()}"
            time.sleep(0.05)

    def audited(self, since: int = 0) -> list[dict[str, Any]]:
        """Audit events after the first `since`, oldest first."""
        lines = self.audit_log.read_text().splitlines()[since:] if self.audit_log.exists() else []
        return [json.loads(line) for line in lines]
