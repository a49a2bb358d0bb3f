"""The demo's API server: a real one with a Node object, where its programs were built; else a line why not.

It starts while the demo compiles. Everything of it is in a capsule, and goes with it.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kube.plane import ControlPlane

NODE_NAME = "gpu-a17"
ACCOUNT = "nodeagent"
TAINTS = "jsonpath={range .spec.taints[*]}{.key}={.value}:{.effect} {end}"
START_SECONDS = 60.0


def missing() -> str:
    """Why there is no API server in this demo; "" when there is one."""
    try:
        from tests.kube import plane
    except ImportError:
        return "needs the test tools: run `make test` once"
    return plane.missing()


class Cluster:
    """A control plane that starts in the background, and the one Node in it."""

    def __init__(self, folder: Path) -> None:
        """`folder` takes the credentials of the agent."""
        self._kubeconfig = folder / "kubeconfig"
        self._plane: ControlPlane | None = None
        self._error: BaseException | None = None
        self._is_ready, self._is_over = threading.Event(), threading.Event()
        # The capsule's first process lives as long as the thread that made it.
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Cluster:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def wait(self) -> None:
        """Return when the Node is there. Raises what the start failed with."""
        self._is_ready.wait(START_SECONDS)
        if self._error is not None:
            raise self._error

    @property
    def prefix(self) -> list[str]:
        """Words before a command that shall see the API server."""
        return self._made().capsule.prefix()

    def sections(self) -> dict[str, dict[str, Any]]:
        """The agent's configuration here."""
        return {"cluster": {"kubeconfig": str(self._kubeconfig)}, "pods": {"source": "none"}}

    def is_tainted(self) -> bool:
        """True while the Node carries a taint of ours."""
        from tests.kube.api import NODES, Api

        node = self._made().admin(Api.get, f"{NODES}/{NODE_NAME}").expect(200)
        return any(taint["key"].startswith("nodeagent.io/") for taint in node["spec"].get("taints", []))

    def shown(self) -> str:
        """What `kubectl get node` prints, with the command before it."""
        done = self._made().kubectl("get", "node", NODE_NAME, "-o", TAINTS)
        return f"\n$ kubectl get node {NODE_NAME} -o {shlex.quote(TAINTS)}\n{done.stdout}{done.stderr}\n"

    def _made(self) -> ControlPlane:
        assert self._plane is not None
        return self._plane

    def _run(self) -> None:
        try:
            self._hold()
        except BaseException as error:
            self._error = error
        finally:
            self._is_ready.set()

    def _hold(self) -> None:
        from tests.kube import plane as control
        from tests.kube.api import (
            NAMESPACES,
            NODES,
            Api,
            account,
            cluster_role,
            cluster_role_binding,
            node,
        )
        from tests.kube.node_agent import RULES

        with contextlib.ExitStack() as stack:
            plane = stack.enter_context(control.ControlPlane())
            for path, body in (
                (NODES, node(NODE_NAME, **{"kubernetes.io/hostname": NODE_NAME})),
                (f"{NAMESPACES}/default/serviceaccounts", account(ACCOUNT)),
                (control.ROLES, cluster_role(ACCOUNT, *RULES)),
                (control.BINDINGS, cluster_role_binding(ACCOUNT, "default", ACCOUNT)),
            ):
                plane.admin(Api.post, path, body).expect(201)
            plane.token_kubeconfig(self._kubeconfig, plane.node_token(ACCOUNT, NODE_NAME))
            self._plane = plane
            self._is_ready.set()
            self._is_over.wait()
