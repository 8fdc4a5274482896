"""A service for uvicorn: it waits as if it worked, and answers; streams tokens; takes uploads."""

import asyncio
import random

from starlette.responses import StreamingResponse

MEDIAN_S, SPREAD = 0.02, 0.6
"""Of the time that a request takes: a logarithmic normal distribution."""
FIRST_S, TOKEN_S, TOKENS = 0.2, 0.05, 20
LARGE = bytes(10_000_000)
BODY = b'{"label": 7, "score": 0.93}'


async def answer(send, body):
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def tokens():
    await asyncio.sleep(FIRST_S * random.lognormvariate(0, SPREAD / 2))
    for number in range(TOKENS):
        if number:
            await asyncio.sleep(TOKEN_S)
        yield f"data: token {number}\n\n"


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/stream":
        await StreamingResponse(tokens(), media_type="text/event-stream")(scope, receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(MEDIAN_S * random.lognormvariate(0, SPREAD))
    await answer(send, LARGE if scope["path"] == "/large" else BODY)
