"""The body of `dlsched adopt`, as anybody who may write the control socket can send it.

Promised: a refusal in one line that changes nothing, or an adoption whose record is read again as
it was written, and whose export is a job file with the same target, bounds, weight and sources.
"""

from __future__ import annotations

import json
from random import Random
from types import SimpleNamespace
from typing import Any

from benchmarks.robustness.fuzzing.label_body import ASKING, KEYS, VALUES
from benchmarks.robustness.fuzzing.mutation import mutated, mutated_json
from benchmarks.robustness.fuzzing.trial import Broken, InFolder, Refused, refusable
from dlsched.api.routes import labels_in_body
from dlsched.cli.adopting import as_yaml, job_keys
from dlsched.config.job import parse_spec
from dlsched.config.metrics.loading import package_presets
from dlsched.model.errors import SpecError
from dlsched.model.spec import ContainerSpec
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.identity.adoption import spec_of
from dlsched.runtime.docker.identity.commands import AdoptionCommands, AdoptionRefused
from dlsched.runtime.docker.listing import Listings
from dlsched.runtime.originals import Originals
from dlsched.runtime.progress.sources import read_sources
from dlsched.store.adoptions import Adopted, Adoptions
from tests.runtime.docker.identity.test_claims import stranger
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.test_listing import FakeEngine

NAME = "adoptions"
_ID = "a" * 64
_NAMES = ("web", "Shop-web-1", "a", "x" * 63, "x" * 64, "con.tainer_1", "-", "..")
_LIMITS: tuple[float | None, ...] = (None, 1.5)
_COHERENT = (
    {"dlsched.target.latency": "50ms", "dlsched.metrics": "vllm"},
    {
        "dlsched.target.latency": "50ms",
        "dlsched.target.quantile": "p95",
        "dlsched.metrics": "fastapi",
        "dlsched.metrics.port": "8000",
        "dlsched.metrics.where.handler": "/predict",
    },
    {
        "dlsched.target.metric": "accuracy",
        "dlsched.target.deliver": "0.9",
        "dlsched.target.finish": "0.97",
        "dlsched.target.deadline": "2h",
        "dlsched.metrics.pattern": r"step=(?P<step>\d+) accuracy=(?P<accuracy>[0-9.]+)",
    },
    {"dlsched.cpus.min": "0.1", "dlsched.cpus.max": "2", "dlsched.weight": "2"},
)
_WORDS = (b'"', b"{", b"}", b"[", b":", b",", b"\\u0000", b"\\ud800", b"null", b"true", b"1e999")


def make(rng: Random) -> bytes:
    labels: Any = dict(rng.choice(_COHERENT))
    for name in rng.sample(list(ASKING), rng.choice((0, 0, 0, 0, 1, 3))):
        labels[name] = ASKING[name]
    for _ in range(rng.choice((0, 1, 1, 2))):
        # Mostly another value of a label that is there: what the target allows depends on all.
        key = rng.choice(list(labels) if rng.random() < 0.7 else KEYS)
        value = rng.choice(VALUES)
        if rng.random() < 0.5:
            words = tuple(one.encode() for one in ASKING.values())
            hurt = mutated(rng, labels.get(key, value).encode(), words, words)
            value = hurt.decode("utf-8", "replace")
        labels[key] = value
    if rng.random() < 0.01:
        labels |= {f"dlsched.{number}": "x" for number in range(rng.randrange(200))}
    labels.pop("dlsched.enable", None) if rng.random() < 0.9 else None
    body: Any = {"labels": labels}
    if rng.random() < 0.1:
        body = mutated_json(rng, body, KEYS)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        others = tuple(one.encode() for one in ASKING.values())
        data = mutated(rng, data, others, (*_WORDS, *others))
    number = rng.randrange(len(_NAMES)) if rng.random() < 0.3 else 0
    return bytes([number, rng.randrange(len(_LIMITS))]) + data


class Reader(InFolder):
    """The commands on one running container, with records in a folder."""

    def __init__(self) -> None:
        super().__init__()
        self._adoptions = Adoptions(self.folder)
        self._limit_cores: float | None = None
        self._presets = package_presets()
        self._engine = FakeEngine()
        stranger(self._engine, _ID, {})
        writer: Any = SimpleNamespace(claims=ExclusiveClaims(None))
        originals = SimpleNamespace(
            cores_before=lambda *_: self._limit_cores, of=Originals(self.folder).of
        )
        instance = instance_of(
            self._engine,
            self.folder,
            name="default",
            adoptions=self._adoptions,
            originals=originals,
            options={"presets": self._presets},
        )
        listings = Listings(instance, Patience(1.0))
        self._commands = AdoptionCommands(instance, listings, writer)

    def answer(self, data: bytes) -> str:
        number, limit = (*data[:2], 0, 0)[:2]
        self._engine.names[_ID] = f"/{_NAMES[number % len(_NAMES)]}"
        self._limit_cores = _LIMITS[limit % len(_LIMITS)]
        labels = labels_in_body(data[2:])
        if labels is None:
            return "no labels"
        self._engine.inspected.clear()
        self._engine.images_asked.clear()
        try:
            taken = refusable(self._commands.adopt, _ID, labels, meant=AdoptionRefused)
        except Refused:
            if self._adoptions.any:
                raise Broken("a refusal that was recorded") from None
            raise
        record = self._adoptions.job(taken.job)
        try:
            return self._checked(record, taken.job, labels)
        finally:
            self._adoptions.drop(_ID, taken.job)
            self._adoptions.readmit(_ID)

    def _checked(self, record: Adopted | None, job: str, labels: dict[str, str]) -> str:
        again = Adoptions(self.folder, read_only=True)
        if record is None or again.job(job) != record or again.alarms:
            raise Broken("another record than was written")
        container = ContainerSpec("image")
        spec = spec_of(job, labels, container, None)
        text = as_yaml({**job_keys(labels), "name": job, "image": "image"})
        try:
            own = parse_spec(text, f"{job}.yaml", presets=self._presets)
        except SpecError as error:
            raise Broken(f"an export that is no job file: {error}") from error
        sources = read_sources(labels, self._presets)
        for what in ("target", "bounds", "weight", "sources"):
            one, other = getattr(own, what), sources if what == "sources" else getattr(spec, what)
            if one != other:
                raise Broken(f"an export with another {what}: {one} for {other}")
        return str((spec, sources))
