"""The environment of a CAF worker as a queue file.

What its standard configuration files read of it is translated: `RabbitWorkerQueueConfiguration.js`
and the variables of the worker itself. Nothing else is guessed: what was ignored is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from orchestrator.core.errors import MusterError
from orchestrator.queues.definitions import RETRY_LIMIT_OF_GATES

LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")
QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>.*)(?P=quote)""")

NUMBERS: Mapping[str, str] = {
    "CAF_RABBITMQ_PREFETCH_BUFFER": "prefetch_buffer",
    "CAF_WORKER_RETRY_LIMIT": "retry_limit",
    "CAF_RABBITMQ_MAX_PRIORITY": "max_priority",
}
NAMES: Mapping[str, str] = {
    "CAF_WORKER_RETRY_QUEUE": "retry_queue",
    "CAF_WORKER_REJECTED_QUEUE": "rejected_queue",
    "CAF_WORKER_PAUSED_QUEUE": "paused_queue",
    "CAF_RABBITMQ_QUEUE_TYPE": "queue_type",
}
INPUT, OUTPUT = "CAF_WORKER_INPUT_QUEUE", "CAF_WORKER_OUTPUT_QUEUE"
DIVERTS = "CAF_WORKER_ENABLE_DIVERTED_TASK_CHECKING"
BASES = ("CAF_WORKER_BASE_QUEUE_NAME", "CAF_WORKER_NAME")
"""The variables whose value names an input queue, with `-in`, where it has no name of its own."""
REJECTED = "worker-rejected"
"""The one queue of rejected tasks in CAF's standard configuration."""

WHY_NOT: Mapping[str, str] = {
    "CAF_RABBITMQ_PROTOCOL": "brokers are named in MUSTER_GATE_BROKERS",
    "CAF_RABBITMQ_HOST": "brokers are named in MUSTER_GATE_BROKERS",
    "CAF_RABBITMQ_PORT": "brokers are named in MUSTER_GATE_BROKERS",
    "CAF_RABBITMQ_USERNAME": "brokers are named in MUSTER_GATE_BROKERS",
    "CAF_RABBITMQ_PASSWORD": "brokers are named in MUSTER_GATE_BROKERS",
    "CAF_RABBITMQ_BACKOFF_INTERVAL": "see MUSTER_GATE_BACKOFF_SECONDS",
    "CAF_RABBITMQ_MAX_BACKOFF_INTERVAL": "see MUSTER_GATE_MAX_BACKOFF_SECONDS",
    "CAF_RABBITMQ_MAX_ATTEMPTS": "a gate never stops trying",
    "CAF_WORKER_THREADS": "slots belong to workers: manage.py worker --queues NAME=SLOTS",
}


class NotACafEnvironment(MusterError):
    """The file is no environment of a CAF worker."""


@dataclass(frozen=True)
class Imported:
    """A queue file made of an environment."""

    text: str
    """YAML, with a comment where somebody has to decide."""
    ignored: tuple[tuple[str, str], ...]
    """Variables of CAF that have no place in it, each with the reason."""


def read_environment(text: str) -> dict[str, str]:
    """Read lines of `NAME=value`, as of `docker --env-file` or a shell's `export`; comments and
    empty lines are left out. Raises NotACafEnvironment with the number of a line that is none."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = LINE.fullmatch(stripped)
        if match is None:
            raise NotACafEnvironment(f"line {number}: expected NAME=value, found {stripped[:80]!r}")
        value = match["value"].strip()
        quoted = QUOTED.fullmatch(value)
        found[match["name"]] = quoted["text"] if quoted else value
    return found


def import_environment(environment: Mapping[str, str], *, name: str | None = None) -> Imported:
    """Translate an environment; `name`: of the queue, by default made of the input queue's.

    Raises NotACafEnvironment if there is no variable of CAF, or a number is none.
    """
    if not any(key.startswith("CAF_") for key in environment):
        raise NotACafEnvironment("expected variables that begin with CAF_, found none")
    base = next((environment[key] for key in BASES if environment.get(key)), "worker")
    input_queue = environment.get(INPUT) or f"{base}-in"
    gate: dict[str, Any] = {"input_queue": input_queue, "rejected_queue": REJECTED}
    if output := environment.get(OUTPUT):
        gate["output_queue"] = output
    gate |= {own: environment[caf] for caf, own in NAMES.items() if environment.get(caf)}
    found = {own: _number(caf, environment) for caf, own in NUMBERS.items()}
    numbers = {own: number for own, number in found.items() if number is not None}
    limits = {"prefetch_buffer": 1, "retry_limit": RETRY_LIMIT_OF_GATES}
    limits |= {key: numbers[key] for key in limits if key in numbers}
    if "max_priority" in numbers:
        gate["max_priority"] = numbers["max_priority"]
    if _is_off(environment.get(DIVERTS)):
        gate["divert"] = "run"
    document = {"name": name or _queue_name(input_queue), **limits, "gate": gate}
    return Imported(_text(document), tuple(_ignored(environment)))


def _number(variable: str, environment: Mapping[str, str]) -> int | None:
    text = environment.get(variable, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise NotACafEnvironment(f"{variable}: expected a whole number, found {text[:40]!r}")
    return int(text[:18])


def _is_off(value: str | None) -> bool:
    return value is not None and value.strip().lower() in ("false", "0", "no")


def _queue_name(input_queue: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", input_queue.lower()).strip("-._")
    return plain.removesuffix("-in")[:100] or "caf"


def _text(document: Mapping[str, Any]) -> str:
    written = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    return (
        "# CAF repeats lost tasks whatever they do. Muster repeats an action whose outcome is\n"
        "# unknown only if it is declared idempotent: name the action here, and say in its pack\n"
        "# whether it is.\n"
        "# action: pack.name\n" + written
    )


def _ignored(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    used = {INPUT, OUTPUT, DIVERTS, *BASES, *NUMBERS, *NAMES}
    for name in sorted(environment):
        if name not in used:
            known = WHY_NOT.get(name)
            is_caf = name.startswith("CAF_")
            yield name, known or ("has no equivalent" if is_caf else "is no variable of CAF")
