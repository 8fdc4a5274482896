"""A service for uvicorn: it waits as if it worked, and answers; streams tokens; takes uploads.

Below /compute it works instead.
"""

import asyncio
import random

from starlette.responses import StreamingResponse

MEDIAN_S, SPREAD = 0.02, 0.6
"""Of the time that a request takes: a logarithmic normal distribution."""
FIRST_S, TOKEN_S, TOKENS = 0.2, 0.05, 20
ANSWER_STEPS, TOKEN_STEPS = 400_000, 130_000
"""About 12 and 4 ms of CPU time."""
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


async def computed_tokens():
    for number in range(TOKENS):
        await asyncio.sleep(0)  # others' tokens
        compute(TOKEN_STEPS if number else ANSWER_STEPS)
        yield f"data: token {number}\n\n"


def compute(steps):
    sum(number * number for number in range(steps))


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    streams = {"/stream": tokens, "/compute/stream": computed_tokens}
    if scope["path"] in streams:
        body = streams[scope["path"]]()
        await StreamingResponse(body, media_type="text/event-stream")(scope, receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/compute":
        compute(ANSWER_STEPS)
    else:
        await asyncio.sleep(MEDIAN_S * random.lognormvariate(0, SPREAD))
    await answer(send, LARGE if scope["path"] == "/large" else BODY)
