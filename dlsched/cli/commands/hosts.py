"""`ps --host`: the jobs of several hosts, each asked with the user's own ssh. What a host answers
is hostile: it is bounded, and read as strictly as a daemon's answer."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

import click

from dlsched.api.codec import SchemaMismatch, read
from dlsched.api.schema import SCHEMA_VERSION, Status
from dlsched.cli.output import one_line
from dlsched.cli.pages.layout import cropped
from dlsched.model.errors import DlschedError

N = TypeVar("N", int, float)

HOSTS_MAX = 256
TOGETHER_MAX = 16
"""Hosts that are asked at the same time."""
CONNECT_S = 10
"""ssh's own ConnectTimeout, which ends before the key exchange."""
ANSWER_S = 30.0
"""Limit of all that one host answers."""
ANSWER_BYTES = 16 << 20
"""Limit of an answer: 1,000 jobs have 2 MiB."""
ERROR_BYTES = 4096
"""What is read of a host's standard error."""
LINE_COLUMNS = 200
"""What is shown of its last line."""
NUMBER_MAX = 1e15
"""Of every number in an answer, with either sign: bytes of a petabyte."""
TEXT_MAX = 4096
"""Characters of every text in an answer."""

_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:@%-]{0,254}", re.ASCII)
_OPTIONS = (
    *("-T", "-n", "-a", "-x"),
    *("-o", "BatchMode=yes"),
    *("-o", f"ConnectTimeout={CONNECT_S}"),
    *("-o", "ClearAllForwardings=yes"),
    # A connection that is shared may be used. One that is opened for it would go on, and hold
    # the standard error.
    *("-o", "ControlMaster=no"),
)
_ASKED = "dlsched ps --json"
_BLOCK_BYTES = 1 << 16


class _Unanswered(Exception):
    """The host did not answer, in one line."""


def named_hosts(given: Sequence[str]) -> tuple[str, ...]:
    """The hosts of `--host a,b --host c`, each once, in that order. Raises UsageError."""
    names = [name.strip() for text in given for name in text.split(",")]
    for name in names:
        # A name that begins with a dash would be an option of ssh.
        if not _HOST.fullmatch(name) or "@-" in name:
            raise click.UsageError(f"--host: {name[:60]!a} is not a host's name")
    found = tuple(dict.fromkeys(names))
    if len(found) > HOSTS_MAX:
        raise click.UsageError(f"--host: {len(found)} hosts, must be at most {HOSTS_MAX}")
    return found


def ask_hosts(hosts: Sequence[str]) -> dict[str, Status | str]:
    """By host its daemon's status, or in one line why there is none. Raises DlschedError without
    ssh."""
    with ThreadPoolExecutor(min(len(hosts), TOGETHER_MAX)) as threads:
        return dict(zip(hosts, threads.map(_ask, hosts), strict=True))


def _ask(host: str) -> Status | str:
    try:
        return _status(_answer(host))
    except _Unanswered as error:
        return cropped(one_line(str(error)), LINE_COLUMNS)


def _answer(host: str) -> bytes:
    """What `dlsched ps --json` prints there. Raises _Unanswered, DlschedError."""
    command = ("ssh", *_OPTIONS, "--", host, _ASKED)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise DlschedError(f"ssh cannot be started: {error.strerror or error}") from error
    with process:
        try:
            answer, errors = _read(process, monotonic() + ANSWER_S)
            code = process.wait(CONNECT_S)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise _Unanswered("ssh did not end in time") from None
            raise
    if code:
        lines = [line for line in errors.decode(errors="replace").split("\n") if line.strip()]
        raise _Unanswered(
            lines[-1].strip().removeprefix("error: ") if lines else f"ssh ended with {code}"
        )
    return answer


def _read(process: subprocess.Popen[bytes], until_s: float) -> tuple[bytes, bytes]:
    """All of its output, and the beginning of its errors. Raises _Unanswered."""
    assert process.stdout is not None
    assert process.stderr is not None
    answer, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, answer)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            left_s = until_s - monotonic()
            if left_s <= 0:
                raise _Unanswered(f"no answer within {ANSWER_S:.0f} s")
            for key, _ in selector.select(left_s):
                block = os.read(key.fd, _BLOCK_BYTES)
                if not block:
                    selector.unregister(key.fileobj)
                key.data.extend(block)
            del errors[ERROR_BYTES:]
            if len(answer) > ANSWER_BYTES:
                raise _Unanswered(f"the host's answer is longer than {ANSWER_BYTES >> 20} MiB")
    return bytes(answer), bytes(errors)


def _status(answer: bytes) -> Status:
    """Raises _Unanswered."""
    try:
        found = json.loads(
            answer,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=lambda text: _bounded(float(text)),
            parse_int=lambda text: _bounded(int(text)),
        )
    except (RecursionError, ValueError) as error:
        raise _Unanswered(f"the host's answer is not a status: {error}") from None
    if not isinstance(found, Mapping):
        raise _Unanswered("the host's answer is not a status: not an object")
    if found.get("schema_version") != SCHEMA_VERSION:
        raise _Unanswered(
            "dlsched on that host has another version of the status: upgrade the older one"
        )
    try:
        return read(Status, found)
    except SchemaMismatch as error:
        raise _Unanswered(str(error)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, value in pairs:
        for text in (key, *value) if isinstance(value, list) else (key, value):
            if isinstance(text, str) and len(text) > TEXT_MAX:
                raise ValueError(f"a text has more than {TEXT_MAX} characters")
    return dict(pairs)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _bounded(number: N) -> N:
    if not abs(number) <= NUMBER_MAX:
        raise ValueError(f"a number is not within {NUMBER_MAX:g}")
    return number
