"""A TLS handshake in memory."""

from __future__ import annotations

import ssl


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
