"""The page of all keys of a gate, written from their rules and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.core.management.markdown import page_of, table_of
from orchestrator.core.packs.keys import Key
from orchestrator.queues.definitions import (
    CAF_NAMES,
    CLASSIFIER_KEYS,
    GATE_DEFAULTS,
    GATE_KEYS,
    OF_THE_QUEUE,
    QUEUE_DEFAULTS,
    RETRY_LIMIT_OF_GATES,
)

MEANINGS: Mapping[str, str] = {
    "broker": "the alias of its broker, of `MUSTER_GATE_BROKERS`; `default` is `BROKER_URL`",
    "input_queue": "where task messages come in",
    "retry_queue": "where messages go that are tried again; empty is the input queue",
    "rejected_queue": "where copies go of what is refused as invalid or beyond its retries; empty "
    "keeps them as dead letters",
    "output_queue": "where answers go; empty sends none",
    "paused_queue": "where messages of a paused job go; empty holds them in the database",
    "queue_type": "the type that its queues are declared with",
    "max_priority": "`x-max-priority` of its queues, and the highest of an answer; 0 declares none",
    "prefetch_buffer": "the queue's `prefetch_buffer`: messages taken ahead beyond the slots of "
    "workers",
    "retry_limit": "the queue's `retry_limit`: starts that may be lost before a message is refused",
    "custody": "when a delivery is acknowledged: after its answer was confirmed (`result`), or "
    "once its row is committed (`row`)",
    "count_redelivered": "a redelivery that nobody wrote a row of counts as a lost start",
    "retry_by": "who repeats a lost attempt: `muster`, or `queue` by a copy on the retry queue",
    "consumes_retry": "takes messages from the retry queue, too",
    "once": "confirms that what an action that is not idempotent has lost is not started again",
    "classifiers": "actions by `taskClassifier`, see below; `*` is for all others",
    "codec": "how `taskData` becomes parameters, and a result becomes `taskData`",
    "divert": "what becomes of a message that is addressed `to` another queue",
    "forward_to": "the queues that it may be forwarded to, such as `orders.*`",
    "allow_loop": "answers may go to a queue that the gate reads",
    "status_check": "asks the status URL of a message's job before it runs",
    "answer_inactive": "answers messages of jobs that are over, too",
    "reply_to": "answers to AMQP's `reply_to` of a message that has it",
    "trusted_users": "AMQP users whose messages are taken, by `user_id`; empty takes all",
    "service_name": "the name in `sourceInfo` of answers, and of failures in reports",
    "service_version": "the version in `sourceInfo` of answers",
}

OF_CLASSIFIERS: Mapping[str, str] = {
    "action": "what runs",
    "versions": "the values of `taskApiVersion` that it takes; empty or missing takes all",
    "answer": "the `taskClassifier` of the answer; empty or missing is that of the message",
}

DEFAULTS: Mapping[str, Any] = {
    **GATE_DEFAULTS,
    "prefetch_buffer": QUEUE_DEFAULTS["prefetch_buffer"],
    "retry_limit": RETRY_LIMIT_OF_GATES,
}
DIVERT = "`forward` with `forward_to`, else `refuse`"


def gates_page() -> str:
    caf = {own: theirs for theirs, own in CAF_NAMES.items()}
    # a gate may have these in CAF's way only
    spelled = {own: caf[own] for own in OF_THE_QUEUE}
    return page_of(
        "Keys of a gate",
        "Below `gate:` in the file of a queue, or in its JSON. Every key but those that are "
        "required may be left out; an unknown one is refused. Several have a second name, that in "
        "CAF's `RabbitWorkerQueueConfiguration`. What they do together: [gates](../gates.md).",
        table_of(
            ("Key", "In CAF", "Meaning", "Default", "Expected"),
            [
                (f"`{spelled.get(name, name)}`", f"`{caf[name]}`" if name in caf else "", *cells)
                for name, *cells in _rows(GATE_KEYS, MEANINGS)
            ],
        ),
        "## Classifiers",
        "`classifiers` has a mapping for each `taskClassifier`:",
        table_of(
            ("Key", "Meaning", "Default", "Expected"),
            [(f"`{name}`", *cells) for name, *cells in _rows(CLASSIFIER_KEYS, OF_CLASSIFIERS)],
        ),
    )


def _rows(keys: Mapping[str, Key], meanings: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name, key in keys.items():
        yield name, meanings[name], _default(name, key), key.expected


def _default(name: str, key: Key) -> str:
    if key.required:
        return "required"
    if name == "divert":
        return DIVERT
    value = DEFAULTS.get(name)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value or value == 0 else "(empty)"
