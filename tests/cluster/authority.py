"""A certificate authority for tests, with certificates as Swarm makes them, and a TLS handshake in
memory."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dlsched.cluster.certificates import Certificates
from tools import debian

WORKER = "swarm-worker"
KEK_HEADER = "kek-version: 0\n\n"


@dataclass(frozen=True)
class Authority:
    """Makes certificates of one cluster in a folder. Starts `openssl`."""

    folder: Path
    cluster: str = "cluster-1"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def make(self) -> Authority:
        """Make its own certificate and key."""
        if shutil.which("openssl") is None:
            debian.install(["openssl"], "certificates of tests")
        self.folder.mkdir(parents=True, exist_ok=True)
        _openssl(self.folder, *_new("ca", "/CN=swarm-ca"), "-x509", "-days", "2", "-out", "ca.crt")
        return self

    def node(
        self,
        name: str,
        role: str = WORKER,
        *,
        organisation: str | None = None,
        days: int = 2,
        as_name: str | None = None,
    ) -> Certificates:
        """A node's certificate; made again, it replaces the files. `as_name`: of the files."""
        file = as_name or name
        subject = f"/O={organisation or self.cluster}/OU={role}/CN={name}"
        extensions = self.folder / f"{file}.ext"
        extensions.write_text(
            f"subjectAltName=DNS:{name},DNS:{role}\nextendedKeyUsage=serverAuth,clientAuth\n"
            "authorityKeyIdentifier=keyid\n",
            encoding="ascii",
        )
        _openssl(self.folder, *_new(file, subject), "-out", f"{file}.csr")
        sign = f"x509 -req -in {file}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days {days}"
        _openssl(self.folder, *sign.split(), "-extfile", extensions.name, "-out", f"{file}.crt")
        key = self.folder / f"{file}.key"
        head, _, rest = key.read_text(encoding="ascii").partition("\n")
        key.write_text(f"{head}\n{KEK_HEADER}{rest}", encoding="ascii")
        return self.files(file)

    def vouch_for(self, other: Authority) -> str:
        """A certificate of the other authority by this one, as Swarm makes of the next one."""
        extensions = self.folder / "next.ext"
        extensions.write_text(
            "basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash\n"
            "authorityKeyIdentifier=none\n",
            encoding="ascii",
        )
        request = f"x509 -x509toreq -in {other.ca} -signkey {other.folder}/ca.key -out next.csr"
        _openssl(self.folder, *request.split())
        sign = "x509 -req -in next.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2"
        _openssl(self.folder, *sign.split(), "-extfile", extensions.name, "-out", "next.crt")
        return (self.folder / "next.crt").read_text(encoding="ascii")

    def files(self, file: str) -> Certificates:
        return Certificates(self.ca, self.folder / f"{file}.crt", self.folder / f"{file}.key")


def _new(file: str, subject: str) -> list[str]:
    curve = "ec_paramgen_curve:prime256v1"
    words = f"req -new -newkey ec -pkeyopt {curve} -nodes -keyout {file}.key -subj"
    return [*words.split(), subject]


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(
        ["openssl", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def meet(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A whole handshake, and a word from the server: a TLS 1.3 client believes itself connected
    before its certificate is judged."""
    inwards, outwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    at_server = server.wrap_bio(inwards, outwards, server_side=True)
    at_client = client.wrap_bio(outwards, inwards, server_hostname=name)
    for side in (at_client, at_server, at_client, at_server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    at_server.write(b"welcome")
    assert at_client.read(7) == b"welcome"
    return at_server, at_client
