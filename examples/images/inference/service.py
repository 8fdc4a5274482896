"""The ASGI application: POST /predict answers images, GET /healthz says that it can.

Requests queue for one worker thread that runs the network, off the event loop: latency under load
is real waiting, and the server still accepts, refuses and reports while a batch runs. Bad requests
get 400 or 413 and one sentence; a full queue gets 503. Knows no sockets and measures nothing.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import digits
import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from classifier import Predict

MOST_IMAGES = 1024
MOST_BODY_BYTES = 1 << 20


class Service:
    """The endpoints over one network, with at most `queue` requests waiting or running."""

    def __init__(self, predict: Predict, images: digits.Digits, queue: int) -> None:
        self._predict, self._images, self._queue = predict, images, queue
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._waiting = 0
        self._next = 0

    async def predict(self, request: Request) -> JSONResponse:
        """Labels of the images sent, or labels and accuracy of the next `count` test images."""
        inputs, labels = self._wanted(parse_body(await read_body(request)))
        if self._waiting >= self._queue:
            raise HTTPException(503, f"{self._waiting} requests wait already, the queue is full")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            answered = await loop.run_in_executor(self._worker, self._predict, inputs)
        finally:
            self._waiting -= 1
        accuracy = None if labels is None else float((answered == labels).mean())
        return JSONResponse({"labels": answered.tolist(), "accuracy": accuracy})

    async def healthz(self, _: Request) -> JSONResponse:
        """Answers at once, also while a batch runs."""
        return JSONResponse({"status": "ok", "waiting": self._waiting})

    def _wanted(
        self, body: NDArray[np.float32] | int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
        if not isinstance(body, int):
            return digits.upsample(body), None
        some = self._images.batch(self._next, body)
        self._next = (self._next + body) % len(self._images.labels)
        return some.inputs, some.labels


async def read_body(request: Request) -> bytes:
    """The body, refused as soon as it is known to be too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise HTTPException(413, f"the body is over {MOST_BODY_BYTES} bytes")
    return bytes(body)


def parse_body(body: bytes) -> NDArray[np.float32] | int:
    """The images asked about (n x 8 x 8), or how many test images to take.

    Raises HTTPException 400 with what is wrong and the bound.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    match asked:
        case {"count": bool()}:
            pass
        case {"count": int(count), **rest} if not rest and 1 <= count <= MOST_IMAGES:
            return count
        case {"images": list(images), **rest} if not rest and 1 <= len(images) <= MOST_IMAGES:
            return parse_images(images)
    raise HTTPException(
        400,
        'the body must be {"images": [...]} or {"count": n}, with 1 to '
        f"{MOST_IMAGES} images, and nothing else",
    )


def parse_images(images: list[Any]) -> NDArray[np.float32]:
    """Nested lists as an array, refused unless each is 8 rows of 8 numbers from 0 to 16."""
    try:
        values = np.asarray(images)
    except (ValueError, OverflowError):
        values = np.empty(0)
    if values.shape[1:] != (digits.SMALL, digits.SMALL) or values.dtype.kind not in "iuf":
        raise HTTPException(400, "images: each must be 8 rows of 8 numbers")
    if not ((values >= 0) & (values <= digits.BRIGHTEST)).all():
        raise HTTPException(400, f"images: every number must be 0 to {digits.BRIGHTEST}")
    return values.astype(np.float32)


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """An HTTPException as JSON."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


def build_app(predict: Predict, images: digits.Digits, queue: int) -> Starlette:
    """The application, not yet measured."""
    service = Service(predict, images, queue)
    return Starlette(
        routes=[
            Route("/predict", service.predict, methods=["POST"]),
            Route("/healthz", service.healthz),
        ],
        exception_handlers={HTTPException: refuse},
    )
