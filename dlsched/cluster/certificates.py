"""TLS between the cluster's nodes: both sides show a certificate of the cluster's own authority.

A node's certificate names it: CN is the node, O the cluster, OU `swarm-manager` or `swarm-worker`,
the DNS name the node again. The files are read again when they change, as certificates are renewed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.model.errors import DlschedError

MANAGER = "swarm-manager"
_END = "-----END CERTIFICATE-----"
OLDEST = ssl.TLSVersion.TLSv1_3
"""Both ends are ours. A resumed session would not verify the peer again: 1.2 always allows it."""


class CertificateError(DlschedError):
    """Certificates that cannot be used, in one line."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a verified certificate names."""

    name: str
    """The node."""
    organisation: str
    """The cluster."""
    is_manager: bool

    @property
    def address(self) -> str:
        """Its connections are counted by its name, from wherever they come."""
        return self.name


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The files as they were read."""

    stamp: tuple[tuple[int, int, int], ...]
    server: ssl.SSLContext
    client: ssl.SSLContext


class Certificates:
    """One node's certificate, its key, and the authority that all nodes trust."""

    def __init__(self, ca: Path, cert: Path, key: Path) -> None:
        """Nothing is read before the first use."""
        self._ca, self._cert, self._key = ca, cert, key
        self._last: _Loaded | None = None
        self._own: tuple[_Loaded, Peer] | None = None

    def server_context(self) -> ssl.SSLContext:
        """For a server; each handshake uses the files as they are then. Raises CertificateError."""
        return self._newest().server

    def client_context(self) -> ssl.SSLContext:
        """For the next connection to a node, whose name is the `server_hostname`. Raises
        CertificateError."""
        return self._newest().client

    def own(self) -> Peer:
        """Whom the own certificate names. It is verified like a peer's, once for the present files:
        raises CertificateError for one that has expired or is of another authority."""
        loaded = self._newest()
        if self._own is None or self._own[0] is not loaded:
            self._own = (loaded, peer(self._verified(loaded)))
        return self._own[1]

    def valid_until(self) -> float:
        """When the own certificate expires, as unix seconds. Raises CertificateError."""
        certificate: Mapping[str, Any] = self._verified(self._newest()).getpeercert() or {}
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))

    def _verified(self, loaded: _Loaded) -> ssl.SSLObject:
        """The own certificate, as a peer has it after a handshake."""
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = loaded.server.wrap_bio(to_server, to_client, server_side=True)
        anyone = self._context(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        client = anyone.wrap_bio(to_client, to_server)
        try:
            for side in (client, server, client):
                _advance(side)
        except ssl.SSLError as error:
            raise CertificateError(f"{self._cert}: {_reason(error)}") from error
        return client

    def _newest(self) -> _Loaded:
        """The present files; the former ones while the present ones cannot be used, such as a new
        certificate whose key is not there yet."""
        last = self._last
        try:
            stamp = tuple(_stamp(path) for path in (self._ca, self._cert, self._key))
            if last is None or stamp != last.stamp:
                server = self._context(ssl.PROTOCOL_TLS_SERVER)
                server.sni_callback = self._renew
                last = _Loaded(stamp, server, self._context(ssl.PROTOCOL_TLS_CLIENT))
                self._last = last
        except CertificateError:
            if last is None:
                raise
        return last

    def _renew(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, used: ssl.SSLContext
    ) -> None:
        """Before a server's answer in a handshake: have it use the present files."""
        newest = self._newest().server
        if newest is not used:
            connection.context = newest

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = OLDEST
        context.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        try:
            # While Swarm replaces its authority, the next one is in the file of the own
            # certificate only, and OpenSSL takes it for a root: issuer and subject are the same.
            _, _, next_authority = _text(self._cert).partition(_END)
            context.load_verify_locations(cadata=f"{_text(self._ca)}\n{next_authority}")
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"{self._ca}: not a certificate: {_reason(error)}") from error
        pair = f"{_text(self._cert)}\n{_bare_key(_text(self._key), self._key)}"
        try:
            with _in_memory(pair) as file:
                # OpenSSL would otherwise ask for a password at the terminal.
                context.load_cert_chain(file, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            line = f"{self._cert}: not a certificate with its key in {self._key}: {_reason(error)}"
            raise CertificateError(line) from error
        return context


def peer(connection: ssl.SSLSocket | ssl.SSLObject) -> Peer:
    """Whom the peer's verified certificate names. Raises CertificateError where there is none, or
    one that does not name a node of a cluster."""
    certificate: Mapping[str, Any] = connection.getpeercert() or {}
    named: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for kind, value in part:
            named.setdefault(kind, []).append(value)
    names = named.get("commonName", [])
    organisations = named.get("organizationName", [])
    if len(names) != 1 or len(organisations) != 1 or not names[0]:
        raise CertificateError("the peer's certificate does not name one node of one cluster")
    is_manager = named.get("organizationalUnitName") == [MANAGER]
    return Peer(names[0], organisations[0], is_manager)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    return found.st_mtime_ns, found.st_ino, found.st_size


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CertificateError(f"{path}: not a PEM file") from error


def _bare_key(text: str, path: Path) -> str:
    """The key without the lines that Swarm puts at its head, which OpenSSL does not read."""
    if "ENCRYPTED" in text:
        raise CertificateError(
            f"{path}: the key is encrypted (autolock): name other files in cluster.tls"
        )
    return "\n".join(line for line in text.splitlines() if line and ":" not in line) + "\n"


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A file of that text which is on no disk; OpenSSL reads keys from files only."""
    descriptor = os.memfd_create("dlsched-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _advance(side: ssl.SSLObject) -> None:
    """Take a handshake as far as the other side's bytes allow."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "reason", None) or str(error)
