"""A service for gunicorn: it waits as if it worked, and answers."""

import random
import time

MEDIAN_S, SPREAD = 0.02, 0.6


def app(_, start_response):
    time.sleep(MEDIAN_S * random.lognormvariate(0, SPREAD))
    body = b'{"label": 7, "score": 0.93}'
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]
