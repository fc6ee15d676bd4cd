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


# each body is one of a kind, so that it can be told what became of it


def _bytes(rng: random.Random) -> Garbage:
    return Garbage(rng.randbytes(rng.randint(16, 200)))


def _no_json(rng: random.Random) -> Garbage:
    return Garbage(_id(rng).encode(), celery_headers(rng.choice(TASKS), _id(rng)))


def _half_of_json(rng: random.Random) -> Garbage:
    body = f'[[], {{"execution_id": "{_id(rng)}'
    return Garbage(body.encode(), celery_headers(rng.choice(TASKS), _id(rng)))


def _json_of_another_shape(rng: random.Random) -> Garbage:
    mark = _id(rng)
    shapes: list[Any] = [
        mark,
        [mark],
        {"n": mark},
        [[], mark],
        [[], mark, {}],
        [mark, 2, 3],
        [[[mark]]],
    ]
    body = json.dumps(rng.choice(shapes)).encode()
    return Garbage(body, celery_headers(rng.choice(TASKS), _id(rng)))


def _wrong_values(rng: random.Random) -> Garbage:
    wrong: list[Any] = [None, -1, 2**70, 1e300, "x" * 300, "\u0000", {}, True, _id(rng)[:-1]]
    kwargs = {
        "n": _id(rng),
        "execution_id": rng.choice(wrong),
        "attempt": rng.choice(wrong),
        "execution_ids": rng.choice([[rng.choice(wrong)], [_id(rng), 5], 7, None]),
    }
    if rng.random() < 0.5:
        numbers: list[Any] = [None, -1, 0, 2**70, 1e300, float("inf"), {}]
        pairs = [[_id(rng), 1], [_id(rng), rng.choice(numbers)]]
        kwargs["attempts"] = rng.choice([pairs, [rng.choice(wrong)], [], [_id(rng), 1], 7, None])
    body = json.dumps([[], kwargs, {}]).encode()
    return Garbage(body, celery_headers(rng.choice(TASKS), _id(rng)))


def _task_that_is_none(rng: random.Random) -> Garbage:
    task = rng.choice([None, 5, "", "no.such.task", ["muster.run"], {"muster.run": 1}])
    return Garbage(_nothing(rng), {"task": task})


def _headers_of_wrong_types(rng: random.Random) -> Garbage:
    headers = celery_headers(rng.choice(TASKS), _id(rng))
    headers[rng.choice(sorted(headers))] = rng.choice([None, 1, {"a": [1]}, ["x"], "y" * 1000])
    return Garbage(_nothing(rng), headers)


def _content_that_is_not_accepted(rng: random.Random) -> Garbage:
    kind = rng.choice(["application/x-python-serialize", "application/x-yaml", "no/such", None])
    body = b"\x80\x04N." + _id(rng).encode()
    return Garbage(body, celery_headers(rng.choice(TASKS), _id(rng)), kind, "binary")


def _unknown_encoding(rng: random.Random) -> Garbage:
    headers = celery_headers(rng.choice(TASKS), _id(rng))
    body = b"\xff\xfe\xfd" + _id(rng).encode()
    return Garbage(body, headers, "application/json", rng.choice(["utf-8", "no-such"]))


def _deep(rng: random.Random) -> Garbage:
    body = b"[" * 5_000 + json.dumps(_id(rng)).encode() + b"]" * 5_000
    return Garbage(body, celery_headers(rng.choice(TASKS), _id(rng)))


def _nothing(rng: random.Random) -> bytes:
    return json.dumps([[], {"n": _id(rng)}, {}]).encode()


def _id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


KINDS = (
    _bytes,
    _no_json,
    _half_of_json,
    _json_of_another_shape,
    _wrong_values,
    _task_that_is_none,
    _headers_of_wrong_types,
    _content_that_is_not_accepted,
    _unknown_encoding,
    _deep,
)
