"""A BentoML service of one method."""

import asyncio

import bentoml


@bentoml.service(workers=2, metrics={"enabled": True})
class Tiny:
    @bentoml.api
    async def predict(self, s: float) -> float:
        await asyncio.sleep(s)
        return s
