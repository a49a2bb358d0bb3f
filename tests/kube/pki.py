"""Keys, certificates and kubeconfigs of one control plane; all die with its folder."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

SERVER_NAMES = ("127.0.0.1", "::1", "localhost", "kubernetes.default.svc", "10.96.0.1")


class Pki:
    """One CA that signs everything, and the key pair of the service accounts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700)
        self._authority = trustme.CA()
        self.ca = folder / "ca.crt"
        self._authority.cert_pem.write_to_path(self.ca)
        self.accounts_private, self.accounts_public = folder / "sa.key", folder / "sa.pub"
        self._make_account_keys()

    def _make_account_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        self.accounts_private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        self.accounts_public.write_bytes(key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))

    def server(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for serving on loopback."""
        return self._write(name, self._authority.issue_cert(*SERVER_NAMES, common_name=name))

    def client(self, name: str, user: str, group: str = "") -> tuple[Path, Path]:
        """Certificate and key that log in as `user` of `group`."""
        made = self._authority.issue_cert("client.invalid", common_name=user, organization_name=group or None)
        return self._write(name, made)

    def _write(self, name: str, made: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        made.cert_chain_pems[0].write_to_path(certificate)
        made.private_key_pem.write_to_path(key)
        return certificate, key


def kubeconfig(path: Path, server: str, ca: Path, *, token: str = "", pair: tuple[Path, Path] | None = None,
               ) -> Path:
    """Write a kubeconfig with one context; JSON is YAML."""
    user = {"token": token} if token else {}
    if pair is not None:
        user = {"client-certificate-data": _coded(pair[0]), "client-key-data": _coded(pair[1])}
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {
            "server": server, "certificate-authority-data": _coded(ca)}}],
        "users": [{"name": "here", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }, indent=1))
    path.chmod(0o600)
    return path


def _coded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
