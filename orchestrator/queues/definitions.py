"""Queues as YAML files, of packs or alone, and as JSON: read and checked without a database.

Keys of a gate have their own names, or those of CAF's `RabbitWorkerQueueConfiguration`
(https://github.com/WorkerFramework/worker-framework, module worker-queue-rabbit).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core import topology
from orchestrator.core.executions import BOUNDS
from orchestrator.core.fleet import LONGEST_PAUSE
from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.packs import Source
from orchestrator.core.packs.keys import MAPPING, QUEUE, TEXT, YES_OR_NO, Key, check, one_of
from orchestrator.core.queue_terms import DEFAULT
from orchestrator.queues.models import Gate
from orchestrator.queues.models.gates import QUEUE_NAME_MAX

ACTION_REF = re.compile(r"[a-z0-9_-]+\.[a-z0-9_.-]+")
ALIAS = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

RETRY_LIMIT_OF_GATES = 10
"""The limit that CAF takes where nobody says it."""

CAF_NAMES: Mapping[str, str] = {
    "prefetchBuffer": "prefetch_buffer",
    "inputQueue": "input_queue",
    "retryQueue": "retry_queue",
    "rejectedQueue": "rejected_queue",
    "outputQueue": "output_queue",
    "pausedQueue": "paused_queue",
    "retryLimit": "retry_limit",
    "maxPriority": "max_priority",
    "queueType": "queue_type",
}
OF_THE_QUEUE = ("prefetch_buffer", "retry_limit")
"""Keys that a gate may have in CAF's way, and that belong to its queue."""

NAMED_QUEUES = ("input_queue", "retry_queue", "rejected_queue", "output_queue", "paused_queue")


@dataclass(frozen=True)
class NewQueue:
    """A queue as its author writes it: values of the models' fields, and defaults for the rest."""

    name: str
    values: Mapping[str, Any]
    """By field of `WorkQueue`; `action` is the name of one."""
    gate: Mapping[str, Any] | None = field(default=None)
    """By field of `Gate`; None without a gate."""


def check_queue(file: Source) -> None:
    """Note all problems with the queue in this file that it has whatever is installed."""
    if not check(file, {"name": QUEUE_NAME, **QUEUE_KEYS}):
        return
    values = file.value
    pause, deadline = values.get("defer_pause_seconds"), values.get("deadline_seconds")
    if is_number(pause) and is_number(deadline) and pause >= deadline:
        file.problem(
            ("defer_pause_seconds",),
            f"defer_pause_seconds: expected less than deadline_seconds, {deadline:g}, as no work "
            f"would start again in time, found {pause:g}",
        )
    if isinstance(values.get("gate"), dict):
        _check_gate(file)


def new_queue(values: Mapping[str, Any], *, name: str | None = None) -> NewQueue:
    """The queue in a checked document; `name`: if it does not say its own."""
    gate = None if values.get("gate") is None else _own_names(values["gate"])
    given = {RENAMED.get(key, key): value for key, value in values.items()}
    given = {key: value for key, value in given.items() if key not in ("name", "gate")}
    if gate is not None:
        given = {"retry_limit": RETRY_LIMIT_OF_GATES} | given
        given |= {key: gate.pop(key) for key in OF_THE_QUEUE if key in gate}
        gate = {**GATE_DEFAULTS, **gate}
        gate.setdefault("divert", Gate.Divert.FORWARD if gate["forward_to"] else Gate.Divert.REFUSE)
    return NewQueue(name or values["name"], {**QUEUE_DEFAULTS, **given}, gate)


def source_of(values: Any, *, name: str) -> Source:
    """A document that is no file, to be checked as one: its problems have their paths."""
    source = Source(Path(name), values)
    if isinstance(values, dict):
        source.value = {"name": name, **values}
    return source


# --- the gate ------------------------------------------------------------------------------------


def _check_gate(file: Source) -> None:
    gate = file.value["gate"]
    for theirs, ours in CAF_NAMES.items():
        if theirs in gate and (ours in gate or (ours in OF_THE_QUEUE and ours in file.value)):
            message = f"gate.{theirs}: given twice, also as {ours}"
            file.problem(("gate", theirs), message, at_key=True)
    written = {key: GATE_KEYS[ours] for key, ours in CAF_NAMES.items() if key in gate}
    allowed = {key: rule for key, rule in GATE_KEYS.items() if key not in OF_THE_QUEUE}
    if "inputQueue" in gate:
        allowed.pop("input_queue")
    check(file, {**allowed, **written}, ("gate",))
    _check_names(file, gate)
    own = _own_names(gate)
    if own.get("queue_type", Gate.QueueType.QUORUM) == Gate.QueueType.QUORUM and own.get(
        "max_priority"
    ):
        _note(
            file, "max_priority",
            f"expected 0, as quorum queues have no priorities, found {own['max_priority']!r}",
        )  # fmt: skip
    if own.get("divert") == Gate.Divert.FORWARD and not own.get("forward_to"):
        _note(file, "divert", "expected forward_to with the names that it may forward to")
    if isinstance(classifiers := own.get("classifiers"), dict):
        for name in classifiers:
            check(file, CLASSIFIER_KEYS, ("gate", "classifiers", name))


def _check_names(file: Source, gate: Mapping[str, Any]) -> None:
    """Note queues that are Muster's own, or that would feed themselves."""
    own = _own_names(gate)
    for key in NAMED_QUEUES:
        name = own.get(key)
        if isinstance(name, str) and (why := reserved(name)):
            _note(file, key, f"expected another name, {why}, found {name!r}")
    taken_from = {own.get("input_queue"), own.get("retry_queue")} - {None, ""}
    if own.get("rejected_queue") and own["rejected_queue"] in taken_from:
        _note(file, "rejected_queue", "expected another queue than the input and retry queues")
    if own.get("output_queue") in taken_from and own.get("allow_loop") is not True:
        _note(
            file, "output_queue",
            "expected another queue than the input and retry queues: answers would come in again; "
            "allow_loop: true allows it",
        )  # fmt: skip
    if own.get("paused_queue") and own["paused_queue"] in taken_from:
        _note(file, "paused_queue", "expected another queue than the input and retry queues")


def reserved(name: str) -> str:
    """The reason why no gate may have a queue of this name; empty if one may."""
    if name.startswith("amq."):
        return "as RabbitMQ reserves amq."
    if topology.find(name) is not None:
        return "as this one is Muster's own"
    return ""


def _note(file: Source, key: str, message: str) -> None:
    """Note a problem with a key of the gate, under the name that the file has for it."""
    gate = file.value["gate"]
    written = next((caf for caf, own in CAF_NAMES.items() if own == key and caf in gate), key)
    file.problem(("gate", written), f"gate.{written}: {message}")


def _own_names(gate: Mapping[str, Any]) -> dict[str, Any]:
    return {CAF_NAMES.get(key, key): value for key, value in gate.items()}


# --- keys ----------------------------------------------------------------------------------------


def _whole(least: int, most: int) -> Key:
    return Key(
        f"a whole number from {least:,} to {most:,}",
        lambda value: is_whole(value) and least <= value <= most,
    )


def _number(least: float, most: float) -> Key:
    return Key(
        f"a number from {least:g} to {most:,.0f}",
        lambda value: is_number(value) and least <= value <= most,
    )


def _is_queue_name(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    return 1 <= len(value.encode("utf-8", "replace")) <= QUEUE_NAME_MAX


def _text(most: int) -> Key:
    return Key(
        f"text of at most {most} characters",
        lambda value: isinstance(value, str) and "\0" not in value and len(value) <= most,
    )


def _texts(what: str) -> Key:
    return Key(
        f"a list of {what}",
        lambda value: (
            isinstance(value, list)
            and all(isinstance(each, str) and each and "\0" not in each for each in value)
        ),
    )


def _matching(pattern: re.Pattern[str], expected: str, *, required: bool = False) -> Key:
    return Key(
        expected,
        lambda value: isinstance(value, str) and bool(pattern.fullmatch(value)),
        required,
    )


QUEUE_NAME = Key(
    f"{QUEUE.expected}, and not {DEFAULT}",
    lambda value: QUEUE.fits(value) and value != DEFAULT,
    required=True,
)
AMQP_QUEUE = Key(f"1 to {QUEUE_NAME_MAX} bytes", _is_queue_name)
AMQP_QUEUE_OR_NONE = Key(
    f"at most {QUEUE_NAME_MAX} bytes", lambda value: value == "" or _is_queue_name(value)
)
REF = _matching(ACTION_REF, "an action, as pack.name")

QUEUE_KEYS: dict[str, Key] = {
    "description": TEXT,
    "accepts": YES_OR_NO,
    "action": REF,
    "priority": _whole(*BOUNDS["priority"]),
    "deadline_seconds": _number(*BOUNDS["deadline_seconds"]),
    "timeout_seconds": _number(*BOUNDS["timeout_seconds"]),
    "retry_limit": _whole(1, 1_000),
    "prefetch_buffer": _whole(0, 100_000),
    "max_running": _whole(1, 1_000_000),
    "defer_seconds": _number(0.1, 3_600),
    "defer_pause_seconds": _number(0, LONGEST_PAUSE.total_seconds()),
    "health_check": _matching(PATH, "a dotted path, such as shop.checks.is_well"),
    "gate": MAPPING,
}

GATE_KEYS: dict[str, Key] = {
    "broker": _matching(ALIAS, "the alias of a broker"),
    "input_queue": Key(AMQP_QUEUE.expected, AMQP_QUEUE.fits, required=True),
    "retry_queue": AMQP_QUEUE_OR_NONE,
    "rejected_queue": AMQP_QUEUE_OR_NONE,
    "output_queue": AMQP_QUEUE_OR_NONE,
    "paused_queue": AMQP_QUEUE_OR_NONE,
    "queue_type": one_of(*Gate.QueueType.values),
    "max_priority": _whole(0, 255),
    "prefetch_buffer": QUEUE_KEYS["prefetch_buffer"],
    "retry_limit": QUEUE_KEYS["retry_limit"],
    "custody": one_of(*Gate.Custody.values),
    "count_redelivered": YES_OR_NO,
    "retry_by": one_of(*Gate.RetryBy.values),
    "consumes_retry": YES_OR_NO,
    "once": YES_OR_NO,
    "classifiers": MAPPING,
    "codec": one_of(*Gate.Codec.values),
    "divert": one_of(*Gate.Divert.values),
    "forward_to": _texts("patterns of queue names"),
    "allow_loop": YES_OR_NO,
    "status_check": YES_OR_NO,
    "answer_inactive": YES_OR_NO,
    "reply_to": YES_OR_NO,
    "trusted_users": _texts("AMQP users"),
    "service_name": _text(100),
    "service_version": _text(40),
}

CLASSIFIER_KEYS: Mapping[str, Key] = {
    "action": Key(REF.expected, REF.fits, required=True),
    "versions": Key(
        "a list of whole numbers",
        lambda value: isinstance(value, list) and all(type(each) is int for each in value),
    ),
    "answer": _text(255),
}

RENAMED = {"priority": "default_priority"}
QUEUE_DEFAULTS: Mapping[str, Any] = {
    "description": "",
    "accepts": True,
    "action": None,
    "default_priority": 0,
    "deadline_seconds": None,
    "timeout_seconds": None,
    "retry_limit": None,
    "prefetch_buffer": 1,
    "max_running": None,
    "defer_seconds": 5.0,
    "defer_pause_seconds": 30.0,
    "health_check": "",
}
GATE_DEFAULTS: Mapping[str, Any] = {
    "broker": "default",
    "retry_queue": "",
    "rejected_queue": "",
    "output_queue": "",
    "paused_queue": "",
    "queue_type": Gate.QueueType.QUORUM.value,
    "max_priority": 0,
    "custody": Gate.Custody.RESULT.value,
    "count_redelivered": True,
    "retry_by": Gate.RetryBy.MUSTER.value,
    "consumes_retry": True,
    "once": False,
    "classifiers": {},
    "codec": Gate.Codec.JSON.value,
    "forward_to": [],
    "allow_loop": False,
    "status_check": True,
    "answer_inactive": False,
    "reply_to": False,
    "trusted_users": [],
    "service_name": "",
    "service_version": "",
}


def key_of(field_name: str, *, of_gate: bool) -> str:
    """The key in a document of a model's field."""
    key = next((key for key, own in RENAMED.items() if own == field_name), field_name)
    return f"gate.{key}" if of_gate else key
