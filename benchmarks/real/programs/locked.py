"""serve.py whose four workers take turns at one lock, and spin while they wait for it.

Runs in a container of the inference example. The more CPU it has, the more of it is burnt by those
that wait: CPU does not help it beyond what one worker needs.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import classifier
import serve
import service

WORKERS = 4

lock = threading.Lock()
open_model = classifier.open_model


def open_locked(model, threads):
    """The network, one answer at a time."""
    predict = open_model(model, threads)

    def locked(inputs):
        while not lock.acquire(blocking=False):
            sum(range(200))
        try:
            return predict(inputs)
        finally:
            lock.release()

    return locked


classifier.open_model = open_locked
service.ThreadPoolExecutor = lambda max_workers: ThreadPoolExecutor(WORKERS * max_workers)
serve.main()
