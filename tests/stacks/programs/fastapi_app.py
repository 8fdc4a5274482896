"""A FastAPI service with prometheus-fastapi-instrumentator, as its README says."""

import asyncio

from fastapi import FastAPI
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel

app = FastAPI()


class Work(BaseModel):
    s: float


@app.post("/predict")
async def predict(work: Work) -> dict[str, float]:
    await asyncio.sleep(work.s)
    return {"slept_s": work.s}


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


Instrumentator().instrument(app).expose(app)
