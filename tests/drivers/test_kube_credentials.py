"""Who we are and whom we trust: kubeconfigs in every state, and the files of a pod."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.kube import find_credentials
from nodeagent.drivers.kube.credentials import from_kubeconfig
from nodeagent.errors import DriverError, ErrorKind

SECRET = "very-secret"


def write(folder: Path, cluster: object = None, user: object = None, **more: Any) -> str:
    """A kubeconfig of one context; its path."""
    whole = {
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster or {"server": "https://h:6443/"}}],
        "users": [{"name": "u", "user": user or {"token": SECRET}}], **more,
    }
    path = folder / "config"
    path.write_text(json.dumps(whole))
    return str(path)


BAD = [
    ({"current-context": "x"}, "current-context 'x' is not among its contexts"),
    ({"clusters": []}, "cluster 'k' is not among its clusters"),
    ({"cluster": {"server": "http://h"}}, "it must be https://HOST:PORT"),
    ({"cluster": {"server": "https://h", "proxy-url": "http://p"}}, "names a proxy-url"),
    ({"cluster": {"server": "https://h", "certificate-authority-data": "%"}}, "is not base64"),
    ({"user": {"exec": {"command": "login"}}}, "logs in by a program"),
    ({"user": {"token": 7}}, "Expected `str`"),
    ({"contexts": 3}, "Expected"),
]


@pytest.mark.parametrize(("given", "told"), BAD)
def test_a_kubeconfig_that_cannot_be_used_is_told_in_a_sentence(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    """The sentence names the file and what is wrong, and no secret."""
    with pytest.raises(DriverError) as caught:
        from_kubeconfig(write(tmp_path, **given))

    assert caught.value.kind is ErrorKind.INVALID
    assert told in str(caught.value) and str(tmp_path) in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"- a\n- b", b"", b"a: &x [*x]", b"token: 'very-secret"])
def test_what_is_no_kubeconfig_is_refused_without_a_quote(tmp_path: Path, text: bytes) -> None:
    """Broken YAML may hold a token: none of it is repeated."""
    path = tmp_path / "config"
    path.write_bytes(text)

    with pytest.raises(DriverError) as caught:
        from_kubeconfig(str(path))

    assert caught.value.kind is ErrorKind.INVALID
    assert SECRET not in str(caught.value)


def test_files_are_named_beside_the_kubeconfig_and_read_anew(tmp_path: Path) -> None:
    """A relative name stands beside the file; a token is as it is now."""
    (tmp_path / "t").write_text("one\n")
    found = from_kubeconfig(write(tmp_path, {"server": "https://h:6443/"}, {"tokenFile": "t", "token": "no"}))

    assert (found.server, found.token()) == ("https://h:6443", "one")
    (tmp_path / "t").write_text("two")
    assert found.token() == "two"


@pytest.mark.parametrize("text", ["", " \n", "a b", "a\r\nX: y", "\xe9"])
def test_a_token_that_would_break_a_header_is_none(tmp_path: Path, text: str) -> None:
    """Nothing of a file that holds no token reaches a request."""
    (tmp_path / "t").write_text(text)
    found = from_kubeconfig(write(tmp_path, user={"tokenFile": "t"}))

    with pytest.raises(DriverError) as caught:
        found.token()
    assert caught.value.kind is ErrorKind.INVALID


def test_an_unusable_ca_is_told(tmp_path: Path) -> None:
    """Base64 that is no certificate is the kubeconfig's fault."""
    coded = base64.b64encode(b"no certificate").decode()
    cluster = {"server": "https://h", "certificate-authority-data": coded}

    with pytest.raises(DriverError) as caught:
        from_kubeconfig(write(tmp_path, cluster)).trust().context()
    assert caught.value.kind is ErrorKind.INVALID


@pytest.mark.parametrize(("environment", "server"), [
    ({}, None),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "https://10.0.0.1:443"),
    ({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://[fd00::1]:6443"),
])  # fmt: skip
def test_a_pods_own_account_is_found(
    tmp_path: Path, environment: dict[str, str], server: str | None
) -> None:
    """Only where the kubelet put a token; IPv6 has its brackets."""
    assert find_credentials("", environment, str(tmp_path)) is None
    (tmp_path / "token").write_text("t")

    found = find_credentials("", environment, str(tmp_path))

    assert (found.server if found else None) == server
