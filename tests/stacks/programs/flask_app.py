"""A Flask service with prometheus_flask_exporter, as its README says."""

import time

from flask import Flask, request
from prometheus_flask_exporter import PrometheusMetrics

app = Flask(__name__)
PrometheusMetrics(app)


@app.post("/predict")
def predict() -> dict[str, float]:
    time.sleep(request.json["s"])
    return {"slept_s": request.json["s"]}


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}
