"""Who is accepted by certificate, and what happens when the files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from dlsched.cluster.certificates import MANAGER, CertificateError, Certificates, Peer, peer
from tests.cluster.authority import Authority, meet

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def manager(authority: Authority) -> Certificates:
    return authority.node("node1", MANAGER)


@pytest.fixture(scope="module")
def worker(authority: Authority) -> Certificates:
    return authority.node("node2")


def test_each_side_learns_whom_it_speaks_to(manager: Certificates, worker: Certificates) -> None:
    at_server, at_client = meet(worker.server_context(), manager.client_context(), "node2")
    assert peer(at_server) == Peer("node1", "cluster-1", is_manager=True)
    assert peer(at_client) == Peer("node2", "cluster-1", is_manager=False)
    assert at_server.version() == "TLSv1.3"
    assert manager.own() == peer(at_server)


def plain_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_an_older_protocol_is_refused(worker: Certificates) -> None:
    older = plain_client()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        meet(worker.server_context(), older, None)


def test_no_session_is_resumed(manager: Certificates, worker: Certificates) -> None:
    _, at_client = meet(worker.server_context(), manager.client_context(), "node2")
    assert at_client.session is None or not at_client.session.has_ticket


def test_a_running_server_uses_a_renewed_certificate(tmp_path: Path, manager: Certificates) -> None:
    authority = Authority(tmp_path).make()
    client = authority.node("node1", MANAGER)
    node = authority.node("node2")
    server = node.server_context()
    _, first = meet(server, client.client_context(), "node2")
    authority.node("node2")
    _, second = meet(server, client.client_context(), "node2")
    assert first.getpeercert(binary_form=True) != second.getpeercert(binary_form=True)
    # The authority is another one, too: the former is no longer trusted.
    Authority(tmp_path).make()
    before = client.client_context()
    authority.node("node1", MANAGER)
    authority.node("node2")
    meet(server, client.client_context(), "node2")
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(server, before, "node2")


def test_nodes_meet_while_their_authority_is_replaced(tmp_path: Path) -> None:
    former, following = Authority(tmp_path / "former").make(), Authority(tmp_path / "next").make()
    vouched = former.vouch_for(following)

    def renewed(node: str) -> Certificates:
        """As Swarm has it meanwhile: the next authority's certificate, the former as the root."""
        following.node(node)
        certificate = following.folder / f"{node}.crt"
        certificate.write_text(certificate.read_text("ascii") + vouched, encoding="ascii")
        return Certificates(former.ca, certificate, following.folder / f"{node}.key")

    one, two, third = renewed("node1"), renewed("node2"), former.node("node3")
    meet(one.server_context(), two.client_context(), "node1")
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(one.server_context(), third.client_context(), "node1")
    finished = following.files("node2")
    meet(one.server_context(), finished.client_context(), "node1")


def test_half_renewed_files_leave_the_former_ones_in_use(tmp_path: Path) -> None:
    authority = Authority(tmp_path).make()
    node = authority.node("node2")
    server, client = node.server_context(), node.client_context()
    former = (tmp_path / "node2.key").read_bytes()
    authority.node("node2")
    renewed = (tmp_path / "node2.key").read_bytes()
    (tmp_path / "node2.key").write_bytes(former)
    meet(server, node.client_context(), "node2")
    assert node.client_context() is client
    (tmp_path / "node2.key").write_bytes(renewed)
    assert node.client_context() is not client


def encrypted(path: Path) -> None:
    path.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nkek-version: 5\n\nMIGk\n", "ascii")


def encrypted_as_before(path: Path) -> None:
    words = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"
    path.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{words}MIGk\n", "ascii")


def missing(path: Path) -> None:
    path.unlink()


def no_pem(path: Path) -> None:
    path.write_bytes(b"\x80\x00")


def other_key(path: Path) -> None:
    path.write_bytes((path.parent / "ca.key").read_bytes())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (encrypted, "the key is encrypted (autolock): name other files in cluster.tls"),
        (encrypted_as_before, "the key is encrypted (autolock): name other files in cluster.tls"),
        (missing, "No such file or directory"),
        (no_pem, "not a PEM file"),
        (other_key, "KEY_VALUES_MISMATCH"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_line(
    tmp_path: Path, change: Callable[[Path], None], line: str
) -> None:
    authority = Authority(tmp_path).make()
    node = authority.node("node2")
    change(tmp_path / "node2.key")
    with pytest.raises(CertificateError) as refused:
        node.server_context()
    assert line in str(refused.value)
    assert f"{tmp_path}/node2.key" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_authority_that_is_none_is_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path).make()
    node = authority.node("node2")
    authority.ca.write_text("nothing\n", "ascii")
    with pytest.raises(CertificateError, match=r"ca\.crt: not a certificate"):
        node.client_context()


def test_nothing_of_the_key_stays_open(worker: Certificates) -> None:
    worker.client_context()
    links = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not any("dlsched-key" in str(link) for link in links)
