"""Where the API server is, whom to trust, and who we are: from the pod's mounted files or from a kubeconfig.

Tokens, certificates and the CA are read again for every request, because all of them are renewed under a
running agent. No secret ever stands in an error or in a file of ours.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from nodeagent.errors import DriverError, ErrorKind, kind_of

ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a pod's token and CA."""
_PORTS = ("KUBERNETES_SERVICE_PORT_HTTPS", "KUBERNETES_SERVICE_PORT")
MAX_FILE_BYTES = 1 << 20


class Credentials(Struct, frozen=True, kw_only=True):
    """One server and one identity; each secret is either the name of a file or its content."""

    server: str
    """https://HOST:PORT, perhaps with a path; no slash at the end."""
    source: str
    """The file or folder that says so."""
    ca_file: str = ""
    ca_data: str = ""
    """PEM."""
    insecure: bool = False
    server_name: str = ""
    """Name that the server's certificate must bear, when it is not the host of `server`."""
    token_file: str = ""
    token_data: str = ""
    certificate_file: str = ""
    certificate_data: bytes = b""
    key_file: str = ""
    key_data: bytes = b""

    def token(self) -> str:
        """The bearer token as it is now, "" when there is none. Raises DriverError."""
        data = read(self.token_file, "read token").strip() if self.token_file else self.token_data.encode()
        if self.token_file and not data:
            raise _error(ErrorKind.INVALID, self.token_file, "read token", "it holds no token")
        if any(not 0x21 <= character <= 0x7E for character in data):
            place = self.token_file or self.source
            raise _error(ErrorKind.INVALID, place, "read token", "it holds no token")
        return data.decode("ascii")

    def trust(self) -> Trust:
        """What TLS depends on, as it is now. Raises DriverError."""
        return Trust(
            ca=read(self.ca_file, "read CA") if self.ca_file else self.ca_data.encode(),
            certificate=_pem(self.certificate_file, self.certificate_data),
            key=_pem(self.key_file, self.key_data), insecure=self.insecure, source=self.source,
        )


class Trust(Struct, frozen=True, kw_only=True):
    """What a TLS context is made of; equal trust, equal context."""

    ca: bytes
    """PEM; empty = the system's."""
    certificate: bytes
    key: bytes
    insecure: bool
    source: str

    def context(self) -> ssl.SSLContext:
        """A new context. Raises DriverError(invalid) for what is no certificate or key."""
        try:
            context = ssl.create_default_context(cadata=self.ca.decode("ascii") if self.ca else None)
            if self.insecure:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if self.certificate:
                _load_pair(context, self.certificate, self.key)
        except (ssl.SSLError, ValueError) as error:
            detail = f"CA, certificate or key cannot be used: {error}"
            raise _error(ErrorKind.INVALID, self.source, "trust", detail) from error
        return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL takes files only: these have no name in any file system."""
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def read(path: str, op: str) -> bytes:
    """The content of a small file. Raises DriverError(absent, denied, invalid)."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _error(kind_of(error), path, op, error.strerror or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise _error(ErrorKind.INVALID, path, op, f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


def _pem(path: str, data: bytes) -> bytes:
    return read(path, "read certificate") if path else data


def in_pod(environment: Mapping[str, str], folder: str = ACCOUNT_FOLDER) -> bool:
    """True where a pod's account is mounted."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and Path(folder, "token").exists()


def find_credentials(
    kubeconfig: str, environment: Mapping[str, str], folder: str = ACCOUNT_FOLDER
) -> Credentials | None:
    """The kubeconfig's credentials when it is named, else the pod's own, else None.

    Raises DriverError when a named kubeconfig cannot be used.
    """
    if kubeconfig:
        return from_kubeconfig(kubeconfig)
    if not in_pod(environment, folder):
        return None
    host, token_file = environment["KUBERNETES_SERVICE_HOST"], Path(folder, "token")
    port = next(filter(None, map(environment.get, _PORTS)), "443")
    shown = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{shown}:{port}", source=folder,
        ca_file=str(Path(folder, "ca.crt")), token_file=str(token_file),
    )


# --------------------------------------------------------------------------- kubeconfig


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: object = None
    auth_provider: object = None


class _Context(Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(Struct):
    name: str
    user: _User | None = None


class _NamedContext(Struct):
    name: str
    context: _Context | None = None


class _Kubeconfig(Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def from_kubeconfig(path: str) -> Credentials:
    """The current context of a kubeconfig. Raises DriverError with what is wrong in it."""
    import msgspec.yaml  # noqa: PLC0415 - a YAML parser that only this needs

    data = read(path, "read kubeconfig")
    try:
        # Decoded in two steps: a message of the YAML parser may quote a line with a secret.
        whole = msgspec.convert(msgspec.yaml.decode(data), _Kubeconfig)
    except msgspec.ValidationError as error:
        raise _kubeconfig_error(path, str(error)) from error
    except Exception as error:  # whatever a YAML parser raises
        raise _kubeconfig_error(path, "it is not YAML") from error
    context = next((c.context for c in whole.contexts or () if c.name == whole.current_context), None)
    if context is None:
        raise _kubeconfig_error(path, f"current-context {whole.current_context!r} is not among its contexts")
    cluster = next((c.cluster for c in whole.clusters or () if c.name == context.cluster), None)
    user = next((u.user for u in whole.users or () if u.name == context.user), None) or _User()
    if cluster is None:
        raise _kubeconfig_error(path, f"cluster {context.cluster!r} is not among its clusters")
    return _checked(path, cluster, user)


def _checked(path: str, cluster: _Cluster, user: _User) -> Credentials:
    parts = urlsplit(cluster.server)
    if parts.scheme != "https" or not parts.hostname:
        raise _kubeconfig_error(path, f"server is {cluster.server!r}, it must be https://HOST:PORT")
    if user.exec is not None or user.auth_provider is not None:
        detail = "its user logs in by a program; use a token, a tokenFile or a certificate"
        raise _kubeconfig_error(path, detail)
    if cluster.proxy_url:
        raise _kubeconfig_error(path, "it names a proxy-url; the agent speaks to the server directly")

    def beside(name: str, data: str) -> str:
        """A file is named relative to the kubeconfig; where the content stands there too, that holds."""
        return str(Path(path).parent / name) if name and not data else ""

    ca = _decoded(path, "certificate-authority-data", cluster.certificate_authority_data)
    return Credentials(
        server=cluster.server.rstrip("/"), source=path, insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name, ca_data=ca.decode("latin-1"),
        ca_file=beside(cluster.certificate_authority, cluster.certificate_authority_data),
        token_file=beside(user.token_file, ""), token_data="" if user.token_file else user.token,
        certificate_file=beside(user.client_certificate, user.client_certificate_data),
        key_file=beside(user.client_key, user.client_key_data),
        certificate_data=_decoded(path, "client-certificate-data", user.client_certificate_data),
        key_data=_decoded(path, "client-key-data", user.client_key_data),
    )


def _decoded(path: str, key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _kubeconfig_error(path, f"{key} is not base64") from error


def _kubeconfig_error(path: str, detail: str) -> DriverError:
    return _error(ErrorKind.INVALID, path, "read kubeconfig", detail)


def _error(kind: ErrorKind, target: str, op: str, detail: str) -> DriverError:
    return DriverError(kind, target, op, detail)
