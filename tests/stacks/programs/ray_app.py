"""A Ray Serve deployment."""

import asyncio

from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.1})
class Tiny:
    async def __call__(self, request: Request) -> dict:
        service_s = (await request.json())["s"]
        await asyncio.sleep(service_s)
        return {"slept_s": service_s}


app = Tiny.bind()
