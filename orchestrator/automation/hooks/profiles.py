"""The profiles that a hook may name, each the scheme of a sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.automation.hooks import texts
from orchestrator.automation.hooks.schemes import Equality, Hmac, Scheme, Standard, Stripe

TOKEN, HMAC = "token", "hmac"

ALWAYS_KEPT = frozenset({"content-type", "user-agent"})

IDEMPOTENCY_KEY = "idempotency-key"

GITHUB = Hmac(
    header="x-hub-signature-256",
    prefix="sha256=",
    signed=texts.split("{body}"),
    id_header="x-github-delivery",
    kept=frozenset(
        {
            "x-github-event", "x-github-delivery", "x-github-hook-id",
            "x-github-hook-installation-target-id", "x-github-hook-installation-target-type",
        }
    ),
)  # fmt: skip

GITLAB = Equality(
    header="x-gitlab-token",
    # a hook that another hook has caused has the same X-Gitlab-Event-UUID, and another key
    id_headers=(IDEMPOTENCY_KEY, "x-gitlab-event-uuid"),
    kept=frozenset(
        {"x-gitlab-event", "x-gitlab-event-uuid", "x-gitlab-webhook-uuid", "x-gitlab-instance"}
    ),
)

SLACK = Hmac(
    header="x-slack-signature",
    prefix="v0=",
    signed=texts.split("v0:{timestamp}:{body}"),
    timestamp_header="x-slack-request-timestamp",
    # Slack signs a repetition again: its time differs, its event_id does not
    id_fields=("event_id",),
    kept=frozenset({"x-slack-retry-num", "x-slack-retry-reason"}),
)

STRIPE = Stripe(
    header="stripe-signature", signed=texts.split("{timestamp}.{body}"), id_fields=("id",)
)

STANDARD = Standard(
    header="webhook-signature",
    prefix="v1,",
    encoding="base64",
    signed=texts.split("{id}.{timestamp}.{body}"),
    timestamp_header="webhook-timestamp",
    id_header="webhook-id",
    kept=frozenset({"webhook-id", "webhook-timestamp"}),
)

OF_SENDERS: Mapping[str, Scheme] = {
    "github": GITHUB, "gitlab": GITLAB, "slack": SLACK, "stripe": STRIPE, "standard": STANDARD,
}  # fmt: skip

NAMES = (*OF_SENDERS, HMAC, TOKEN)


def of(parameters: Mapping[str, Any]) -> Scheme | None:
    """The scheme of a hook's parameters, which were checked; None for tokens of the API."""
    name = parameters["profile"]
    if name == HMAC:
        return _of_template(parameters["hmac"])
    return OF_SENDERS.get(name)


def _of_template(template: Mapping[str, Any]) -> Hmac:
    time, id = (template.get(name, "").lower() for name in ("timestamp_header", "id_header"))
    return Hmac(
        header=template["header"].lower(),
        signed=texts.split(template.get("signed", "{body}")),
        algorithm=template.get("algorithm", "sha256"),
        encoding=template.get("encoding", "hex"),
        prefix=template.get("prefix", ""),
        timestamp_header=time,
        id_header=id,
        kept=frozenset(filter(None, (time, id))),
    )
