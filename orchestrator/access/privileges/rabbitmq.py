"""Users of RabbitMQ, as definitions that it imports: permissions by name, and by routing key.

RabbitMQ matches regular expressions with the names of exchanges and queues: `configure` to declare
and delete, `write` to publish to an exchange and to bind a queue, `read` to consume, to purge, and
to bind to an exchange. Where an exchange has topic permissions, they match routing keys besides.
https://www.rabbitmq.com/docs/access-control
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
from django.conf import settings

from orchestrator.access import privileges
from orchestrator.core import topology
from orchestrator.core.errors import MusterError

NOTHING = "^$"
NO_KEY = "(?!)"
"""Matches no routing key, not even the empty one."""

DEFAULT_EXCHANGE = "amq.default"
"""Its name in permissions. It reaches any queue by the queue's name."""

EVENTS = "celeryev"
MARK = "WORKER_ID"
ANY_WORKER = "[0-9]+"
SALT_BYTES = 4
TIMEOUT_SECONDS = 20


class NotImported(MusterError):
    """RabbitMQ did not take the definitions."""


@dataclass(frozen=True)
class Permissions:
    """The permissions of a user for exchanges and queues, as regular expressions."""

    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Routing keys to write and to bind, by exchange."""


def permissions(
    service: str, *, worker_id: int | None = None, sends_events: bool = False
) -> Permissions:
    """The permissions of a service; of a worker of its own user with `worker_id`."""
    if service == privileges.WORKER:
        return _of_worker(ANY_WORKER if worker_id is None else str(worker_id), sends_events)
    if service == "executor":
        return _of_executor(sends_events)
    return {"api": _of_api, "beat": _of_beat, "notifier": _of_notifier}[service]()


def _of_executor(sends_events: bool) -> Permissions:
    """It declares everything, and takes what the shared queues bring."""
    queues = [re.escape(spec.name) for spec in topology.shared_queues()]
    queues.append(re.escape(topology.told_queue("")) + ".*")
    queues.append(_heard_in())
    celerys = _of_celerys_tools(sends_events)
    all_of_it = _any([*_exchanges(), *queues, *_worker_queues(ANY_WORKER), *celerys])
    return Permissions(all_of_it, all_of_it, all_of_it)


def _of_api() -> Permissions:
    """It publishes events, requests, dispatches and cancels, and removes the queues of a worker
    that is retired. For its streams, it hears of changes."""
    told, heard = re.escape(topology.notifications_exchange()), _heard_in()
    executions, events = topology.executions_exchange(), topology.events_exchange()
    shared = [spec.name for spec in topology.shared_queues()]
    keys = [_key(key(MARK), ANY_WORKER) for key in (topology.dispatch_key, topology.cancel_key)]
    return Permissions(
        configure=_any([*_worker_queues(ANY_WORKER), heard]),
        # queues: RabbitMQ 4.3 shows their depths only to who may do something with them, and this
        # is the least
        write=_any([*map(re.escape, (executions, events, *shared)), told, heard]),
        read=_any([told, heard]),
        topics={
            executions: (_any([*_hot_keys(executions), *keys]), NO_KEY),
            events: (_any(_hot_keys(events)), NO_KEY),
        },
    )


def _of_notifier() -> Permissions:
    """It hears of changes, in queues that go with its connections, and tells nobody."""
    told, heard = re.escape(topology.notifications_exchange()), _heard_in()
    return Permissions(configure=_any([heard]), write=_any([heard]), read=_any([told, heard]))


def _heard_in() -> str:
    """The queues in which listeners hear of changes."""
    return re.escape(topology.notifications_queue("")) + "[^/]+"


def _of_beat() -> Permissions:
    """It sends ticks to the queue of maintenance, by the default exchange."""
    return Permissions(
        configure=_any([re.escape(topology.maintenance_queue().name)]),
        write=_any([re.escape(DEFAULT_EXCHANGE)]),
    )


def _of_worker(id: str, sends_events: bool) -> Permissions:
    """It declares and consumes its own two queues, and publishes what it ended or gave back.

    A queue with a dead letter exchange may only be declared by who may write to that exchange; the
    routing keys leave it nothing to write there.
    """
    own = [*_worker_queues(id), *_of_celerys_tools(sends_events)]
    executions, dead_letters = topology.executions_exchange(), topology.dead_letter_exchange()
    told = topology.notifications_exchange()
    keys = [_key(key(MARK), id) for key in (topology.dispatch_key, topology.cancel_key)]
    return Permissions(
        configure=_any(own),
        write=_any([*own, *map(re.escape, (executions, dead_letters, told))]),
        read=_any([*own, re.escape(executions)]),
        topics={
            executions: (
                _any(
                    map(
                        re.escape,
                        (topology.REQUESTED, topology.COMPLETED, topology.STATUS_CHANGED),
                    )
                ),
                _any(keys),
            ),
            dead_letters: (NO_KEY, NO_KEY),
        },
    )


def _exchanges() -> list[str]:
    return [re.escape(name) for name in topology.exchange_purposes()]


def _worker_queues(id: str) -> list[str]:
    return [re.escape(spec.name).replace(MARK, id) for spec in topology.worker_queues(MARK)]


def _hot_keys(exchange: str) -> list[str]:
    """The keys with which the hot queues are bound to an exchange, whose `*` and `#` stand for
    words."""
    return [
        re.escape(spec.routing_key).replace(r"\*", "[^.]+").replace(r"\#", ".*")
        for spec in topology.hot_queues()
        if spec.exchange == exchange
    ]


def _key(routing_key: str, id: str) -> str:
    return re.escape(routing_key).replace(MARK, id)


def _of_celerys_tools(sends_events: bool) -> list[str]:
    """The exchange of events, and for remote control the exchanges and queues of all nodes."""
    namespace = settings.MUSTER.namespace
    prefix = "" if namespace == topology.DEFAULT_NAMESPACE else f"{re.escape(namespace)}\\."
    events = [f"{prefix}{EVENTS}"] if sends_events or settings.MUSTER.celery_events else []
    if settings.MUSTER.remote_control == "off":
        return events
    control = f"{prefix}celery\\.pidbox"
    return [*events, control, f"reply\\.{control}", f"[^@]+@.+\\.{control}"]


def _any(patterns: Iterable[str]) -> str:
    return f"^({'|'.join(patterns)})$"


# --- definitions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrokerUser:
    """A user with what it may do, and its password, if that is to be set."""

    name: str
    permissions: Permissions
    password: str | None = None


def definitions(users: Iterable[BrokerUser], *, virtual_host: str) -> dict[str, Any]:
    """A document for `rabbitmqctl import_definitions`. It has hashes, and no password. It makes the
    exchanges, too: RabbitMQ 4.3 refuses topic permissions for one that is not there."""
    listed = list(users)
    return {
        "exchanges": [
            {
                "name": name,
                "vhost": virtual_host,
                "type": kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for name, (kind, _) in topology.exchange_purposes().items()
        ],
        "users": [
            {
                "name": user.name,
                "password_hash": password_hash(user.password),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
            for user in listed
            if user.password is not None
        ],
        "permissions": [
            {
                "user": user.name,
                "vhost": virtual_host,
                "configure": user.permissions.configure,
                "write": user.permissions.write,
                "read": user.permissions.read,
            }
            for user in listed
        ],
        "topic_permissions": [
            {
                "user": user.name,
                "vhost": virtual_host,
                "exchange": exchange,
                "write": write,
                "read": read,
            }
            for user in listed
            for exchange, (write, read) in user.permissions.topics.items()
        ],
    }


def send(definitions: Mapping[str, Any], *, url: str, broker_url: str) -> None:
    """Import definitions over the API of the management plugin. Raises NotImported."""
    login = urlsplit(broker_url)
    try:
        response = httpx.post(
            f"{url.rstrip('/')}/api/definitions",
            json=definitions,
            auth=(unquote(login.username or ""), unquote(login.password or "")),
            timeout=TIMEOUT_SECONDS,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotImported(f"{url}: {error}") from None
    if not response.is_success:
        raise NotImported(f"{url}: {response.status_code} {' '.join(response.text.split()):.500}")


def password_hash(password: str, *, salt: bytes | None = None) -> str:
    """The hash that RabbitMQ stores of a password: https://www.rabbitmq.com/docs/passwords."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    digest = hashlib.sha256(salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode()
