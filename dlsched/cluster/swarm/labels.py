"""Records, submissions and requests as labels of config objects, and the names of those.

Anyone with a manager's engine can edit labels; every error of reading them is a ValueError of one
line that names the label.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.cluster.core.records import Record, RecordState, Request, Submission
from dlsched.cluster.wire import first_problem
from dlsched.model.units import plain_text, shown

PREFIX = "dlsched."
VERSION = "2"
"""Of this format; records of another one are left to the dlsched that wrote them. 1 had a label for
each value."""
PACKED_MAX_BYTES = 16 * 1024
"""Of a job file, compressed. The engine lists all of them in one answer of at most 16 MiB."""
WHY_MAX = 300
FILE_NAME_MAX = 255

_INSTANCE_MAX, _JOB_MAX = 16, 29
"""A config's name has at most 64 characters: `dlsched.`, instance, `.submitted.`, job."""
_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*")
_HASHED = "sha256-"

_VERSION, _INSTANCE = f"{PREFIX}v", f"{PREFIX}instance"
JOB = f"{PREFIX}job"
VALUE = f"{PREFIX}value"
"""The label with all of it, as JSON, or `removed` of a record that is about to be."""


@dataclass(frozen=True, slots=True)
class _StoredSubmission(Submission):
    owner: int | None = None
    """uid of the file's owner: up to 0.2.0 it was always written."""


_STORED_SUBMISSION = TypeAdapter(_StoredSubmission)
_RECORD, _SUBMISSION, _REQUEST = TypeAdapter(Record), TypeAdapter(Submission), TypeAdapter(Request)


RECORDS, SUBMISSIONS, REQUESTS = "job", "submitted", "asked"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one instance's configs."""

    instance: str

    @property
    def prefix(self) -> str:
        """Of all of them, and of no other instance's."""
        return f"{PREFIX}{_part(self.instance, _INSTANCE_MAX, dotted=False)}."

    def start(self, kind: str) -> str:
        """How the names of all records, submissions or requests begin."""
        return f"{self.prefix}{kind}."

    def of(self, kind: str, about: str) -> str:
        return f"{self.start(kind)}{name_part(about)}"

    def request(self, request: Request) -> str:
        """Of every request of this kind for the same subject."""
        return self.of(REQUESTS, ".".join(filter(None, (request.verb.value, request.subject))))


def name_part(job: str) -> str:
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
    record = replace(record, why=_one_line(record.why, WHY_MAX))
    return _labels(instance, record.job, _RECORD.dump_json(record, exclude_defaults=True))


def removed_labels(job: str, instance: str) -> dict[str, str]:
    """What the labels are just before a record is removed."""
    return _labels(instance, job, b"removed")


def is_removed(labels: Mapping[str, str], instance: str) -> bool:
    own = {key: value for key, value in labels.items() if key.startswith(PREFIX)}
    return own == removed_labels(labels.get(JOB, ""), instance)


def read_record(labels: Mapping[str, str], instance: str) -> Record:
    """Raises ValueError."""
    record = _read(_RECORD, labels, instance)
    for needed, states in _NEEDED.items():
        if (record.state in states) != (getattr(record, needed) is not None):
            what = "is missing" if record.state in states else "is not allowed"
            raise ValueError(
                f"label {VALUE}: {needed} {what} in the record of a job that is {record.state}"
            )
    return record


_NEEDED = {
    "target": {RecordState.LEAVING},
    "source": {RecordState.MOVING, RecordState.UNDOING, RecordState.RETURNING},
}
"""What belongs to these states, and to no others."""


def submission_labels(submission: Submission, instance: str) -> dict[str, str]:
    """A submission as labels. Raises ValueError for a job file that is too long."""
    packed = zlib.compress(submission.text.encode("utf-8"), 9)
    if len(packed) > PACKED_MAX_BYTES:
        raise ValueError(
            f"the job file has {len(packed)} bytes when compressed; at most {PACKED_MAX_BYTES}"
            " can be submitted to the cluster"
        )
    name, text = _one_line(submission.name, FILE_NAME_MAX), base64.b64encode(packed).decode("ascii")
    stored = replace(submission, name=name, text=text)
    return _labels(instance, submission.job, _SUBMISSION.dump_json(stored))


def read_submission(labels: Mapping[str, str], instance: str) -> Submission:
    """Raises ValueError."""
    stored = _read(_STORED_SUBMISSION, labels, instance)
    return Submission(stored.job, _unpacked(stored.text), stored.by, stored.name)


def request_labels(request: Request, instance: str) -> dict[str, str]:
    """A request as labels."""
    return _labels(instance, None, _REQUEST.dump_json(request))


def read_request(labels: Mapping[str, str], instance: str) -> Request:
    """Raises ValueError."""
    return _read(_REQUEST, labels, instance)


def _labels(instance: str, job: str | None, value: bytes) -> dict[str, str]:
    labels = {_VERSION: VERSION, _INSTANCE: instance, VALUE: value.decode("utf-8")}
    return labels if job is None else {**labels, JOB: job}


_Stored = TypeVar("_Stored")


def _read(adapter: TypeAdapter[_Stored], labels: Mapping[str, str], instance: str) -> _Stored:
    """Raises ValueError."""
    for key, own in ((_VERSION, VERSION), (_INSTANCE, instance)):
        if labels.get(key) != own:
            what = f"label {key} is {shown(labels.get(key, ''))}, must be {shown(own)}"
            raise ValueError(f"{what}: another version or instance of dlsched wrote this config")
    try:
        return adapter.validate_json(labels.get(VALUE, ""))
    except ValidationError as error:
        raise ValueError(f"label {VALUE}: {first_problem(error)}") from None


def _unpacked(text: str) -> str:
    try:
        return zlib.decompress(base64.b64decode(text, validate=True)).decode("utf-8")
    except (ValueError, zlib.error):
        raise ValueError(f"label {VALUE}: text is not a compressed job file") from None


def _one_line(text: str, most: int) -> str:
    return " ".join(plain_text(text[: 2 * most]).split())[:most]
