"""One control plane for all tests of a run that ask for it; they share it, so each uses names of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kube import api
from tests.kube.deployed import Deployed
from tests.kube.plane import ControlPlane, missing

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A real API server; skipped where none can be started, with the command that helps."""
    if reason := missing():
        pytest.skip(reason)
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="session")
def deployed(plane: ControlPlane) -> Deployed:
    """`daemonset.yaml` applied on it, and two Nodes."""
    return Deployed(plane)


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    """The name of a Node object of this test alone."""
    name = f"node-{next(_numbers)}"
    # Of an object without any field of its own the server never keeps managedFields.
    plane.admin(api.Api.post, api.NODES, api.node(name, **{"kubernetes.io/hostname": name})).expect(201)
    yield name
    plane.admin(api.Api.delete, f"{api.NODES}/{name}").expect(200, 404)
