"""Deliveries as the documentation of each sender has them, and more that were signed here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.automation.hooks.deliveries import Delivery

AT = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
SECOND = str(int(AT.timestamp()))


@dataclass(frozen=True)
class Vector:
    """A delivery that its sender signed with this secret."""

    profile: str
    secret: str
    body: bytes
    headers: Mapping[str, str]
    signature: str
    """The header that has it."""
    key: str
    at: datetime = AT
    hmac: Mapping[str, Any] | None = None
    wrong_times: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.profile

    @property
    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "path": self.profile,
            "profile": self.profile,
            "secrets": [{"$key": "shop/hook"}],
        }
        return parameters | ({"hmac": dict(self.hmac)} if self.hmac else {})

    def delivery(self, **changed: str) -> Delivery:
        return Delivery(headers={**self.headers, **changed}, body=self.body)


def mac(secret: bytes | str, content: bytes, algorithm: str = "sha256") -> str:
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(key, content, getattr(hashlib, algorithm)).hexdigest()


# docs.github.com, "Validating webhook deliveries": "Testing the webhook payload validation"
GITHUB = Vector(
    profile="github",
    secret="It's a Secret to Everybody",
    body=b"Hello, World!",
    headers={
        "x-hub-signature-256": (
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        ),
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "x-github-event": "push",
    },
    signature="x-hub-signature-256",
    key="72d3162e-cc78-11e3-81ab-4c9367dc0958",
)

# docs.gitlab.com, "Webhooks": "Delivery headers"
GITLAB = Vector(
    profile="gitlab",
    secret="made-up-for-a-test",
    body=b'{"object_kind": "push"}',
    headers={
        "x-gitlab-token": "made-up-for-a-test",
        "x-gitlab-event": "Push Hook",
        "x-gitlab-event-uuid": "13792a34-cac6-4fda-95a8-c58e00a3954e",
        "idempotency-key": "f5e57b71-e9ff-4ccf-a2a9-5d1f6ee6c43c",
    },
    signature="x-gitlab-token",
    key="f5e57b71-e9ff-4ccf-a2a9-5d1f6ee6c43c",
)

_SLACK = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

# docs.slack.dev, "Verifying requests from Slack": its step-by-step walk-through
SLACK = Vector(
    profile="slack",
    secret="8f742231b10e8888abcd99yyyzzz85a5",
    body=_SLACK,
    headers={
        "content-type": "application/x-www-form-urlencoded",
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": (
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        ),
    },
    signature="x-slack-signature",
    key=f"1531420618:{hashlib.sha256(_SLACK).hexdigest()}",
    at=datetime.fromtimestamp(1531420618, tz=UTC),
)

# the Standard Webhooks specification, "Signature scheme", and its libraries' tests
STANDARD = Vector(
    profile="standard",
    secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    body=b'{"test": 2432232314}',
    headers={
        "content-type": "application/json",
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    signature="webhook-signature",
    key="msg_p5jXN8AQM9LWM0D4loKWxJek",
    at=datetime.fromtimestamp(1614265330, tz=UTC),
)

_STRIPE = b'{"id": "evt_1NG8Du2eZvKYlo2CUI79vXWy", "object": "event"}'

# docs.stripe.com, "Verify webhook signatures manually": `t=...,v1=...`, over `{t}.{body}`
STRIPE = Vector(
    profile="stripe",
    secret="whsec_made-up-for-a-test",
    body=_STRIPE,
    headers={
        "content-type": "application/json; charset=utf-8",
        "stripe-signature": (
            f"t={SECOND},"
            f"v1={mac('whsec_made-up-for-a-test', SECOND.encode() + b'.' + _STRIPE)},"
            "v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
        ),
    },
    signature="stripe-signature",
    key="evt_1NG8Du2eZvKYlo2CUI79vXWy",
)

_HMAC = b'{"number": 5}'

HMAC = Vector(
    profile="hmac",
    secret="made-up-for-a-test",
    body=_HMAC,
    headers={
        "content-type": "application/json",
        "x-shop-time": SECOND,
        "x-shop-signature": (
            f"v1:{mac('made-up-for-a-test', SECOND.encode() + b'|' + _HMAC, 'sha512')}"
        ),
    },
    signature="x-shop-signature",
    key=f"{SECOND}:{hashlib.sha256(_HMAC).hexdigest()}",
    hmac={
        "header": "X-Shop-Signature",
        "algorithm": "sha512",
        "prefix": "v1:",
        "signed": "{timestamp}|{body}",
        "timestamp_header": "X-Shop-Time",
    },
)

ALL = (GITHUB, GITLAB, SLACK, STRIPE, STANDARD, HMAC)
SIGNED = (GITHUB, SLACK, STRIPE, STANDARD, HMAC)
"""All but GitLab, which signs nothing: it sends the secret."""
TIMED = (SLACK, STRIPE, STANDARD, HMAC)
