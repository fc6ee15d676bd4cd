"""Webhooks: as JSON, and as facts. Their secrets are keys, of which the names are shown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from orchestrator.automation import hook_paths
from orchestrator.automation.hooks import parameters as hook_parameters
from orchestrator.automation.hooks.deliveries import TAKEN, Outcome
from orchestrator.automation.models import DeliveryCount, Trigger, Webhook
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import Fact, said

WORDS = {
    Outcome.ACCEPTED: "made an event",
    Outcome.DUPLICATE: "repeated an event",
    Outcome.KEPT_INVALID: "made an event that asks no rule, as it does not fit the schema",
    Outcome.ANSWERED: "a question of Slack, answered",
    Outcome.UNSIGNED: "refused: signature missing or wrong",
    Outcome.TOO_OLD: "refused: signature of another time",
    Outcome.NOT_PERMITTED: "refused: token missing, or not permitted",
    Outcome.UNREADABLE: "refused: cannot be read",
    Outcome.INVALID: "refused: does not fit the schema",
    Outcome.NO_SECRET: "refused: the hook has no secret that can be opened",
    Outcome.TOO_MANY: "refused: too many in a minute",
    Outcome.BUSY: "refused: too many events wait",
    Outcome.UNKNOWN_PATH: "refused: no such path",
}


class DeliveryCountShown(Shown):
    """The number of deliveries that had one outcome."""

    outcome: str
    total: int
    last_at: datetime
    last_detail: str = Field(description="Why the last one was refused.")
    last_address: str


class WebhookShown(Shown):
    """A path, and the trigger whose events its deliveries are."""

    path: str
    address: str = Field(description="Below the address of the API.")
    profile: str
    secrets: list[str] = Field(description="The keys of its secrets; either is valid.")
    trigger_id: int
    deliveries: list[DeliveryCountShown]


def shown(row: Webhook) -> WebhookShown:
    """Convert a hook, loaded with its trigger and its counts."""
    return WebhookShown(
        path=row.path,
        address=hook_paths.address_of(row),
        profile=row.trigger.parameters["profile"],
        secrets=hook_parameters.references(row.trigger.parameters),
        trigger_id=row.trigger_id,
        deliveries=[_count(each) for each in row.deliveries.all()],
    )


def _count(row: DeliveryCount) -> DeliveryCountShown:
    names = ("outcome", "total", "last_at", "last_detail", "last_address")
    return DeliveryCountShown(**{name: getattr(row, name) for name in names})


def of_trigger(trigger: Trigger) -> Webhook | None:
    """The hook of a trigger; None if it has none, or another one has its path."""
    return getattr(trigger, "webhook", None)


def situation(row: Webhook) -> list[Fact]:
    """The facts of a webhook: where it is, and who may send."""
    parameters = row.trigger.parameters
    return said(
        [
            ("Address", f"POST {hook_paths.address_of(row)}"),
            ("Profile", parameters["profile"]),
            ("Secrets", ", ".join(hook_parameters.references(parameters)) or "tokens of the API"),
            ("Headers in events", ", ".join(sorted(hook_parameters.kept_headers(parameters)))),
        ]
    )


def in_words(outcome: str) -> str:
    """An outcome as people read it."""
    return WORDS[Outcome(outcome)] if outcome in set(Outcome) else outcome


def is_taken(outcome: str) -> bool:
    """Return True if the sender was answered 2xx."""
    return outcome in TAKEN


def totals(counts: Iterable[DeliveryCount]) -> tuple[int, int]:
    """The number of deliveries that were taken, and of those that were refused."""
    taken = refused = 0
    for each in counts:
        if is_taken(each.outcome):
            taken += each.total
        else:
            refused += each.total
    return taken, refused
