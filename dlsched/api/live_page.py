"""The live page at `/` and its files: static, read once, for reading only. What the page shows it
asks at `/v1`, with the rights of its caller."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

WEB = Path(__file__).resolve().parent.parent / "web"
"""The files as they are sent: no step builds them."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    "": "text/plain; charset=utf-8",  # the licence of what is vendored
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A page of an earlier version would not understand the answers of this one.
    "Cache-Control": "no-store",
}
"""Of each file: nothing of another origin is loaded, and no other page may frame or read it."""


class Page:
    """The page's files, in memory: a request's path is a key and never reaches the file system."""

    def __init__(self, folder: Path = WEB) -> None:
        self._files = {
            str(path.relative_to(folder)): (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    @property
    def routes(self) -> list[Route]:
        return [Route("/", self._answer), Route("/static/{path:path}", self._answer)]

    async def _answer(self, request: Request) -> Response:
        name = request.path_params.get("path", "index.html")
        if name not in self._files:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no file {name[:80]!a} belongs to the page")
        content, media_type = self._files[name]
        return Response(content, media_type=media_type, headers=HEADERS)
