"""A service for gunicorn: it waits as if it worked, and answers; at /compute it works instead."""

import random
import time

MEDIAN_S, SPREAD = 0.02, 0.6
STEPS = 400_000
"""About 12 ms of CPU time."""


def app(environ, start_response):
    if environ["PATH_INFO"] == "/compute":
        sum(number * number for number in range(STEPS))
    else:
        time.sleep(MEDIAN_S * random.lognormvariate(0, SPREAD))
    body = b'{"label": 7, "score": 0.93}'
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]
