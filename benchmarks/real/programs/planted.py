"""Servers that are slow for a planted cause, and their clients: `planted.py serve CAUSE PORT ...`,
`planted.py ask PORT ...`. Standard library only; runs in containers."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

PAGE = 4096
FILE_BYTES = 192 << 20
LOCK = threading.Lock()
KEPT = threading.local()


def work(rounds: int) -> int:
    value = 1
    for each in range(rounds):
        value = (value * 31 + each) % 65_521
    return value


def cpu(seconds: str) -> Callable[[], None]:
    """That much CPU time, as it takes at the start: reading a clock all the time would be waiting
    in a loop."""
    began_s = time.thread_time()
    work(200_000)
    rounds = round(200_000 * float(seconds) / (time.thread_time() - began_s))

    def answer() -> None:
        work(rounds)

    return answer


def large_file() -> int:
    """A file that no small memory limit has room for."""
    path = Path("/data/large")
    with path.open("wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(FILE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return os.open(path, os.O_RDONLY)


def fsync() -> Callable[[], None]:
    def answer() -> None:
        file = os.open(f"/data/{threading.get_native_id()}", os.O_CREAT | os.O_WRONLY)
        os.pwrite(file, b"x" * PAGE, random.randrange(256) * PAGE)
        os.fsync(file)
        os.close(file)

    return answer


def synced_writes() -> Callable[[], None]:
    file = os.open("/data/synced", os.O_CREAT | os.O_WRONLY | os.O_SYNC)

    def answer() -> None:
        for _ in range(3):
            os.pwrite(file, b"x" * PAGE, random.randrange(4096) * PAGE)

    return answer


def direct_reads() -> Callable[[], None]:
    large_file()

    def answer() -> None:
        buffer = mmap.mmap(-1, PAGE)
        file = os.open("/data/large", os.O_RDONLY | os.O_DIRECT)
        for _ in range(4):
            os.preadv(file, [buffer], random.randrange(FILE_BYTES // PAGE) * PAGE)
        os.close(file)

    return answer


def lock_and_sleep(seconds: str) -> Callable[[], None]:
    def answer() -> None:
        with LOCK:
            time.sleep(float(seconds))

    return answer


def file_lock(seconds: str) -> Callable[[], None]:
    """One lock for several processes."""

    def answer() -> None:
        file = os.open("/data/lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(float(seconds))
        os.close(file)

    return answer


def mapped_pages(count: str) -> Callable[[], None]:
    mapped = mmap.mmap(large_file(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_RANDOM)

    def answer() -> None:
        for _ in range(int(count)):
            mapped[random.randrange(FILE_BYTES)]

    return answer


def read_pages(count: str) -> Callable[[], None]:
    file = large_file()
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)

    def answer() -> None:
        for _ in range(int(count)):
            os.pread(file, PAGE, random.randrange(FILE_BYTES // PAGE) * PAGE)

    return answer


def scan(mib: str) -> Callable[[], None]:
    """Read the file from the beginning, so much at a time."""
    file, at = large_file(), [0]

    def answer() -> None:
        for _ in range(int(mib)):
            at[0] = (at[0] + (1 << 20)) % FILE_BYTES
            os.pread(file, 1 << 20, at[0])

    return answer


def call(port: str) -> Callable[[], None]:
    """Ask another server, on a connection that is kept."""

    def answer() -> None:
        if not hasattr(KEPT, "connection"):
            KEPT.connection = http.client.HTTPConnection("127.0.0.1", int(port))
        KEPT.connection.request("GET", "/")
        KEPT.connection.getresponse().read()

    return answer


def sleep(seconds: str) -> Callable[[], None]:
    return lambda: time.sleep(float(seconds))


def spin(threads: str) -> Callable[[], None]:
    """A program of OpenMP, whose threads wait for each other in loops; it computes once a byte."""
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    pipe = subprocess.PIPE
    child = subprocess.Popen(["/data/spin"], stdin=pipe, stdout=pipe, bufsize=0, env=environment)
    assert child.stdin is not None
    assert child.stdout is not None
    to, back = child.stdin, child.stdout

    def answer() -> None:
        with LOCK:
            to.write(b"x")
            back.read(1)

    return answer


CAUSES: dict[str, Callable[..., Callable[[], None]]] = {
    one.__name__: one
    for one in (
        *(fsync, synced_writes, direct_reads, lock_and_sleep, file_lock, mapped_pages, read_pages),
        *(scan, call, cpu, sleep, spin),
    )
}


def handler(answer: Callable[[], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answer()
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class OneThread(HTTPServer):
    """Answers one connection after the other; a kept one would keep it from others."""

    request_queue_size = 128


class Threads(ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 128
    daemon_threads = True


async def serve_async(port: int, answer: Callable[[], None]) -> None:
    """Connections in one thread, answers in a pool."""
    pool = ThreadPoolExecutor(16)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.get_running_loop().run_in_executor(pool, answer)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    await server.serve_forever()


def serve(kind: str, port: int, cause: str, *parameters: str) -> None:
    """`kind`: threads, one, async, or a number of processes with threads."""
    answer = CAUSES[cause](*parameters)
    if kind == "async":
        asyncio.run(serve_async(port, answer))
        return
    server = {"one": OneThread}.get(kind, Threads)(
        ("127.0.0.1", port), handler(answer), bind_and_activate=False
    )
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.server_bind()
    server.server_activate()
    for _ in range(int(kind) - 1 if kind.isdigit() else 0):
        if os.fork() == 0:
            break
    server.serve_forever()


def ask(port: int, clients: int, rate_per_s: float) -> None:
    """So many clients, each with one request at a time; with a rate above 0 requests come at
    random, whether or not others are answered, as far as the clients reach."""
    due = threading.Semaphore(0 if rate_per_s else 1 << 30)

    def one() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            due.acquire()
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(0.1)

    for _ in range(clients):
        threading.Thread(target=one, daemon=True).start()
    chance, next_s = random.Random(1), time.monotonic()
    while True:
        next_s += chance.expovariate(rate_per_s) if rate_per_s else 1.0
        time.sleep(max(next_s - time.monotonic(), 0.0))
        if rate_per_s:
            due.release()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "serve":
        serve(rest[0], int(rest[1]), *rest[2:])
    else:
        ask(int(rest[0]), int(rest[1]), float(rest[2]))
