"""Records and submissions as labels of config objects, and the names of those.

Anyone with a manager's engine can edit labels, so each is checked when it is read; every error is a
ValueError of one line that names the label.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.cluster.core.records import Record, RecordState, Request, Saved, Submission, Wanted
from dlsched.config.text import SIZE_MAX_BYTES
from dlsched.model.spec import NAME
from dlsched.model.units import plain_text, shown
from dlsched.report.lines import PATH_CHARACTERS

PREFIX = "dlsched."
VERSION = "1"
"""Of this format; records of another one are left to the dlsched that wrote them."""
PACKED_MAX_BYTES = 16 * 1024
"""Of a job file, compressed. The engine lists all of them in one answer of at most 16 MiB."""
NUMBER_MAX = 2**53
WHY_MAX = 300
FILE_NAME_MAX = 255

_INSTANCE_MAX, _JOB_MAX = 16, 29
"""A config's name has at most 64 characters: `dlsched.`, instance, `.submitted.`, job."""
_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*")
_HASHED = "sha256-"

_JOB = re.compile(NAME)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DIGEST = re.compile(r"([0-9a-f]{64})?")
_FILE = re.compile(rf"/.{{0,{PATH_CHARACTERS - 1}}}")
_NONE = re.compile("")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,15}")
_EVERY = {"v", "instance", "job"}
_OF_RECORD = _EVERY | {
    "state", "on", "epoch", "digest", "first", "target", "source",
    "saved.step", "saved.sha256", "saved.bytes", "saved.file", "moves", "exit_code", "why",
    "ends_s", "failover", "off",
}  # fmt: skip
_OF_REQUEST = {"v", "instance", "verb", "subject", "target"}
_OF_SUBMISSION = _EVERY | {"by", "name", "owner", "text"}

REMOVED = "removed"
"""The label of a record that is about to be removed."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one instance's configs."""

    instance: str

    @property
    def prefix(self) -> str:
        """Of all of them, and of no other instance's."""
        return f"{PREFIX}{_part(self.instance, _INSTANCE_MAX, dotted=False)}."

    @property
    def records(self) -> str:
        """How the names of all records begin."""
        return f"{self.prefix}job."

    @property
    def submissions(self) -> str:
        return f"{self.prefix}submitted."

    @property
    def requests(self) -> str:
        return f"{self.prefix}asked."

    def request(self, request: Request) -> str:
        """Of every request of this kind for the same subject."""
        about = ".".join(filter(None, (request.verb.value, request.subject)))
        return f"{self.requests}{self.part(about)}"

    def record(self, job: str) -> str:
        return f"{self.records}{self.part(job)}"

    def submission(self, job: str) -> str:
        return f"{self.submissions}{self.part(job)}"

    @staticmethod
    def part(job: str) -> str:
        """How a config's name ends."""
        return _part(job, _JOB_MAX)


def _part(text: str, most: int, *, dotted: bool = True) -> str:
    """The text where it can be a part of a config's name, else its digest."""
    fits = len(text) <= most and _PLAIN_NAME.fullmatch(text) and (dotted or "." not in text)
    if fits and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(text.encode()).hexdigest()[: most - len(_HASHED)]


def record_labels(record: Record, instance: str) -> dict[str, str]:
    """A record as labels."""
    saved = record.saved
    values: dict[str, object] = {
        "job": record.job,
        "state": record.state.value,
        "on": record.on,
        "epoch": record.epoch,
        "digest": record.digest,
        "first": record.first,
        "target": record.target,
        "source": record.source,
        "saved.step": saved.step if saved else None,
        "saved.sha256": saved.sha256 if saved else None,
        "saved.bytes": saved.size_bytes if saved else None,
        "saved.file": saved.file or None if saved else None,
        "moves": record.moves,
        "exit_code": record.exit_code,
        "why": _one_line(record.why, WHY_MAX),
        "ends_s": record.ends_s or None,
        "failover": record.failover or None,
        "off": record.off or None,
    }
    return _labels(values, instance)


def removed_labels(job: str, instance: str) -> dict[str, str]:
    """What the labels are just before a record is removed."""
    return _labels({"job": job, REMOVED: "true"}, instance)


def is_removed(labels: Mapping[str, str], instance: str) -> bool:
    own = {key: value for key, value in labels.items() if key.startswith(PREFIX)}
    return own == removed_labels(labels.get(f"{PREFIX}job", ""), instance)


def read_record(labels: Mapping[str, str], instance: str) -> Record:
    """Raises ValueError."""
    read = _Reader(labels, _OF_RECORD, instance)
    epoch = read.number("epoch", 1)
    saved = None
    if any(read.has(key) for key in ("saved.step", "saved.sha256", "saved.bytes")):
        saved = Saved(
            read.number("saved.step"),
            read.text("saved.sha256", _DIGEST),
            read.number("saved.bytes"),
            read.text("saved.file", _FILE) if read.has("saved.file") else "",
        )
    state = read.state()
    for needed, states in _NEEDED.items():
        if (state in states) != read.has(needed):
            what = "is missing" if state in states else "does not belong there"
            raise ValueError(f"label {PREFIX}{needed} {what}, as it is {state.value}")
    return Record(
        job=read.text("job", _JOB),
        state=state,
        on=read.text("on", _NODE),
        epoch=epoch,
        digest=read.text("digest", _DIGEST),
        first=read.number("first", 1, epoch),
        target=read.text("target", _NODE) if read.has("target") else None,
        source=read.text("source", _NODE) if read.has("source") else None,
        saved=saved,
        moves=read.number("moves"),
        exit_code=read.number("exit_code", -(2**31), 2**31) if read.has("exit_code") else None,
        why=_one_line(read.text("why"), WHY_MAX),
        ends_s=read.number("ends_s") if read.has("ends_s") else 0,
        failover=read.has("failover"),
        off=read.has("off"),
    )


_NEEDED = {
    "target": {RecordState.LEAVING},
    "source": {RecordState.MOVING, RecordState.UNDOING, RecordState.RETURNING},
}
"""Labels that belong to these states, and to no others."""


def submission_labels(submission: Submission, instance: str) -> dict[str, str]:
    """A submission as labels. Raises ValueError for a job file that is too long."""
    content = submission.text.encode("utf-8")
    if len(content) > SIZE_MAX_BYTES:
        raise ValueError(f"its job file has more than {SIZE_MAX_BYTES // 1024} KiB")
    packed = zlib.compress(content, 9)
    if len(packed) > PACKED_MAX_BYTES:
        raise ValueError(
            f"its job file has {len(packed)} bytes when compressed; at most {PACKED_MAX_BYTES}"
            " can be submitted to the cluster"
        )
    values = {
        "job": submission.job,
        "by": submission.by,
        "name": _one_line(submission.name, FILE_NAME_MAX),
        "owner": submission.owner,
        "text": base64.b64encode(packed).decode("ascii"),
    }
    return _labels(values, instance)


def read_submission(labels: Mapping[str, str], instance: str) -> Submission:
    """Raises ValueError."""
    read = _Reader(labels, _OF_SUBMISSION, instance)
    return Submission(
        job=read.text("job", _JOB),
        text=_unpacked(read.text("text")),
        by=read.text("by", _NODE),
        name=_one_line(read.text("name"), FILE_NAME_MAX),
        owner=read.number("owner", 0, 2**32) if read.has("owner") else None,
    )


def request_labels(request: Request, instance: str) -> dict[str, str]:
    """A request as labels."""
    values = {"verb": request.verb.value, "subject": request.subject, "target": request.target}
    return _labels(values, instance)


def read_request(labels: Mapping[str, str], instance: str) -> Request:
    """Raises ValueError."""
    read = _Reader(labels, _OF_REQUEST, instance)
    try:
        verb = Wanted(read.text("verb"))
    except ValueError:
        raise ValueError(f"label {PREFIX}verb: {shown(read.text('verb'))} is no request") from None
    subject = {Wanted.PAUSE: _NONE, Wanted.MOVE: _JOB, Wanted.FORGET: _NODE}[verb]
    target = _NODE if verb is Wanted.MOVE else _NONE
    return Request(verb, read.text("subject", subject), read.text("target", target))


def others_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels that are nothing of dlsched's; they stay as they are."""
    return {key: value for key, value in labels.items() if not key.startswith(PREFIX)}


def _labels(values: Mapping[str, object], instance: str) -> dict[str, str]:
    every = {"v": VERSION, "instance": instance, **values}
    return {f"{PREFIX}{key}": str(value) for key, value in every.items() if value is not None}


def _unpacked(text: str) -> str:
    unpacking, content = zlib.decompressobj(), b""
    try:
        packed = base64.b64decode(text, validate=True)
        content = unpacking.decompress(packed, SIZE_MAX_BYTES + 1)
        found = content.decode("utf-8")
    except (ValueError, zlib.error):
        raise ValueError(f"label {PREFIX}text is not a compressed job file") from None
    if not unpacking.eof or len(content) > SIZE_MAX_BYTES:
        raise ValueError(f"label {PREFIX}text is not a whole job file")
    return found


def _one_line(text: str, most: int) -> str:
    return " ".join(plain_text(text[: 2 * most]).split())[:most]


class _Reader:
    """Reads labels one by one. Raises ValueError."""

    def __init__(self, labels: Mapping[str, str], known: set[str], instance: str) -> None:
        self._own = {
            key.removeprefix(PREFIX): value
            for key, value in labels.items()
            if key.startswith(PREFIX)
        }
        version = self.text("v")
        if version != VERSION:
            raise ValueError(
                f"label {PREFIX}v is {shown(version)}: this dlsched reads format {VERSION}"
            )
        if self.text("instance") != instance:
            raise ValueError(f"label {PREFIX}instance is not {shown(instance)}")
        for key in sorted(self._own.keys() - known):
            raise ValueError(f"label {shown(PREFIX + key)} is not known")

    def has(self, key: str) -> bool:
        return key in self._own

    def text(self, key: str, form: re.Pattern[str] | None = None) -> str:
        if key not in self._own:
            raise ValueError(f"label {PREFIX}{key} is missing")
        value = self._own[key]
        if form is not None and not form.fullmatch(value):
            raise ValueError(f"label {PREFIX}{key}: {shown(value)} is not valid")
        return value

    def number(self, key: str, low: int = 0, high: int = NUMBER_MAX) -> int:
        value = self.text(key)
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise ValueError(f"label {PREFIX}{key}: {shown(value)} is not {low} to {high}")
        return int(value)

    def state(self) -> RecordState:
        value = self.text("state")
        try:
            return RecordState(value)
        except ValueError:
            raise ValueError(f"label {PREFIX}state: {shown(value)} is no state") from None
