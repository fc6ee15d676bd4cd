"""Messages that nobody sent: wrong in every way that a message can be wrong."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

TASKS = ("muster.run", "muster.cancel", "muster.schedule", "muster.completed", "muster.unknown")


@dataclass(frozen=True)
class Garbage:
    body: bytes
    headers: dict[str, Any] = field(default_factory=dict)
    content_type: str | None = "application/json"
    content_encoding: str | None = "utf-8"


def make(rng: random.Random) -> Garbage:
    """One malformed message, of one of many kinds."""
    return rng.choice(KINDS)(rng)


def celery_headers(task: str, id: str) -> dict[str, Any]:
    """Headers of Celery's task message protocol 2."""
    return {
        "lang": "py",
        "task": task,
        "id": id,
        "root_id": id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": "()",
        "kwargsrepr": "{}",
    }


def _bytes(rng: random.Random) -> Garbage:
    return Garbage(rng.randbytes(rng.randint(1, 200)))


def _empty(rng: random.Random) -> Garbage:
    return Garbage(b"", celery_headers(rng.choice(TASKS), _id(rng)))


def _half_of_json(rng: random.Random) -> Garbage:
    return Garbage(b'[[], {"execution_id": "', celery_headers(rng.choice(TASKS), _id(rng)))


def _json_of_another_shape(rng: random.Random) -> Garbage:
    shape: Any = rng.choice(
        [None, 7, "text", [], {}, [[], []], [[], None, {}], [1, 2, 3], [[[[]]]]]
    )
    return Garbage(json.dumps(shape).encode(), celery_headers(rng.choice(TASKS), _id(rng)))


def _wrong_values(rng: random.Random) -> Garbage:
    wrong: list[Any] = [
        None,
        -1,
        2**70,
        1e300,
        "x" * 300,
        "\u0000",
        [],
        {},
        True,
        str(uuid.UUID(int=1)),
    ]
    kwargs = {
        "execution_id": rng.choice(wrong),
        "attempt": rng.choice(wrong),
        "execution_ids": rng.choice([*wrong, [rng.choice(wrong)], [str(uuid.UUID(int=2)), 5]]),
    }
    for name in rng.sample(sorted(kwargs), k=rng.randint(0, 2)):
        del kwargs[name]
    body = json.dumps([[], kwargs, {}]).encode()
    return Garbage(body, celery_headers(rng.choice(TASKS), _id(rng)))


def _no_task(rng: random.Random) -> Garbage:
    return Garbage(b"[[], {}, {}]", {"task": rng.choice([None, 5, "", "no.such.task"])})


def _headers_of_wrong_types(rng: random.Random) -> Garbage:
    headers = celery_headers(rng.choice(TASKS), _id(rng))
    headers[rng.choice(sorted(headers))] = rng.choice([None, 1, {"a": [1]}, ["x"], "y" * 1000])
    return Garbage(b"[[], {}, {}]", headers)


def _content_that_is_not_accepted(rng: random.Random) -> Garbage:
    kind = rng.choice(["application/x-python-serialize", "application/x-yaml", "no/such", None])
    return Garbage(b"\x80\x04N.", celery_headers(rng.choice(TASKS), _id(rng)), kind, "binary")


def _unknown_encoding(rng: random.Random) -> Garbage:
    headers = celery_headers(rng.choice(TASKS), _id(rng))
    return Garbage(b"\xff\xfe\xfd", headers, "application/json", rng.choice(["utf-8", "no-such"]))


def _deep(rng: random.Random) -> Garbage:
    return Garbage(b"[" * 5_000 + b"]" * 5_000, celery_headers(rng.choice(TASKS), _id(rng)))


def _id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


KINDS = (
    _bytes,
    _empty,
    _half_of_json,
    _json_of_another_shape,
    _wrong_values,
    _no_task,
    _headers_of_wrong_types,
    _content_that_is_not_accepted,
    _unknown_encoding,
    _deep,
)
