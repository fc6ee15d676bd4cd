"""Bindings and policies of the broker, which AMQP cannot query.

RabbitMQ lists them over the HTTP API of its management plugin, and the embedded broker in its file.
https://www.rabbitmq.com/docs/http-api-reference
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx
from django.conf import settings
from kombu import Connection

from orchestrator.core.errors import MusterError

PORTS = {"amqp": ("http", 15672), "amqps": ("https", 15671)}
"""The scheme and the port at which the management plugin listens by default, for the scheme of the
broker's URL."""

TIMEOUT_SECONDS = 5.0


class NotListed(MusterError):
    """The broker does not list its bindings."""


@dataclass(frozen=True)
class Binding:
    """A binding: what one exchange passes on, and where to."""

    source: str
    destination: str
    routing_key: str
    destination_type: str = "queue"
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Policy:
    """The values that an operator's policy sets for one queue, besides its arguments."""

    name: str
    queue: str
    sets: Mapping[str, Any]


@dataclass(frozen=True)
class Listing:
    """All bindings and policies of the virtual host."""

    bindings: list[Binding]
    policies: list[Policy]


def read(link: Connection) -> Listing:
    """List all bindings and policies. Raises NotListed, which says why not and what to do."""
    if urlsplit(settings.BROKER_URL).scheme == "sqlitemq":
        channel: Any = link.default_channel
        return Listing([Binding(*each) for each in channel.bindings()], [])
    virtual_host = quote(link.virtual_host or "/", safe="")
    bindings = _get(f"/api/bindings/{virtual_host}")
    columns = "name,policy,operator_policy,effective_policy_definition"
    queues = _get(f"/api/queues/{virtual_host}?columns={columns}")
    try:
        return Listing(
            [_binding(each) for each in bindings if each["source"]],
            [
                Policy(
                    str(each.get("policy") or each.get("operator_policy")),
                    each["name"],
                    each["effective_policy_definition"],
                )
                for each in queues
                if each.get("effective_policy_definition")
            ],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise NotListed(f"{_address()[0]} is not RabbitMQ's management API: {error!r}") from None


def _binding(each: Mapping[str, Any]) -> Binding:
    return Binding(
        each["source"],
        each["destination"],
        each["routing_key"],
        each["destination_type"],
        each["arguments"],
    )


def _get(path: str) -> Any:
    url, user, password = _address()
    try:
        response = httpx.get(f"{url}{path}", auth=(user, password), timeout=TIMEOUT_SECONDS)
        if response.status_code in (401, 403):
            raise NotListed(
                f"RabbitMQ's management API at {url} refuses the user {user} "
                f"({response.status_code}): give it the tag monitoring, or name another in "
                "BROKER_MANAGEMENT_URL"
            )
        response.raise_for_status()
        return response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else repr(error)
        raise NotListed(
            f"RabbitMQ's management API does not answer at {url} ({why}): turn on the plugin "
            "rabbitmq_management, or say in BROKER_MANAGEMENT_URL where it is"
        ) from None


def _address() -> tuple[str, str, str]:
    """Address, user and password of the management API: as configured, or the broker's host and
    login."""
    broker = urlsplit(settings.BROKER_URL.split(";")[0])
    parts = urlsplit(settings.BROKER_MANAGEMENT_URL)
    login = parts if parts.username else broker
    user, password = unquote(login.username or "guest"), unquote(login.password or "guest")
    if parts.hostname:
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", user, password
    scheme, port = PORTS[broker.scheme]
    host = broker.hostname or ""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", user, password
