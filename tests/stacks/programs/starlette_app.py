"""A Starlette service with starlette_exporter, as its README says."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette_exporter import PrometheusMiddleware, handle_metrics


async def predict(request: Request) -> JSONResponse:
    work = await request.json()
    await asyncio.sleep(work["s"])
    return JSONResponse({"slept_s": work["s"]})


async def health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


app = Starlette(
    routes=[
        Route("/predict", predict, methods=["POST"]),
        Route("/health", health),
        Route("/metrics", handle_metrics),
    ]
)
app.add_middleware(PrometheusMiddleware)
