"""What is sent for programs that are not ours: the fate of each message, on the right broker. All
cases with the embedded broker run with RabbitMQ as well."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from kombu import Connection

from orchestrator.core import brokers, lanes, publisher
from orchestrator.core.lanes import Fate, RawMessage
from settings import brokers as broker_settings

Queue = Callable[..., str]

REJECTING = {"x-max-length": 2, "x-overflow": "reject-publish"}


@pytest.fixture(params=["sqlitemq", "rabbitmq"])
def gates(request: Any, settings: Any, tmp_path: Path) -> Iterator[str]:
    """The alias of a broker that is not Muster's own."""
    url = f"sqlitemq:///{tmp_path / 'gates.db'}"
    if request.param == "rabbitmq":
        url = request.getfixturevalue("rabbitmq_url")
    settings.BROKER_URL = "amqp://127.0.0.1:1//"  # away, and not needed
    settings.GATE_BROKERS = {"gates": url}
    yield "gates"
    publisher.drop_lane("gates")


@pytest.fixture
def link(gates: str) -> Iterator[Connection]:
    with brokers.connection(gates) as link:
        yield link


@pytest.fixture
def queue(link: Connection) -> Iterator[Queue]:
    """Declares a durable queue of a name of its own."""
    channel: Any = link.default_channel
    names: list[str] = []

    def declare(**arguments: Any) -> str:
        name = f"raw.{uuid.uuid4().hex[:8]}"
        channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)
        names.append(name)
        return name

    yield declare
    with contextlib.suppress(*brokers.errors()):
        for name in names:
            channel.queue_delete(name)


def got(link: Connection, queue: str) -> list[Any]:
    channel: Any = link.default_channel
    raw = iter(lambda: channel.basic_get(queue, no_ack=True), None)
    return [channel.message_to_python(message) for message in raw]


def test_bytes_headers_and_properties_arrive_as_they_were(
    gates: str, link: Connection, queue: Queue
) -> None:
    name = queue()
    headers = {"x-caf-worker-retry": "3", "x-list": [1, {"a": True}], "x-none": None}
    properties = {
        "content_type": "text/plain",
        "priority": 7,
        "correlation_id": "c",
        "message_id": "m",
        "reply_to": "r",
        "expiration": "60000",
        "app_id": "a",
        "type": "t",
    }
    body = bytes(range(256))
    sent = RawMessage(body, name, headers=headers, properties=properties)
    assert publisher.send_raw([sent], broker=gates) == [Fate(lanes.TAKEN)]
    (message,) = got(link, name)
    assert bytes(message.body) == body
    assert message.headers == headers
    assert {key: message.properties[key] for key in properties if key != "content_type"} == {
        key: value for key, value in properties.items() if key != "content_type"
    }
    assert message.content_type == "text/plain"
    assert message.properties["delivery_mode"] == lanes.PERSISTENT


def test_each_message_without_a_queue_is_reported_and_the_others_arrive(
    gates: str, link: Connection, queue: Queue
) -> None:
    there, missing = queue(), f"missing.{uuid.uuid4().hex[:8]}"
    batch = [
        RawMessage(b"same", name, properties={"message_id": str(number)})
        for number, name in enumerate([there, missing, there, missing, there])
    ]
    fates = publisher.send_raw(batch, broker=gates)
    assert [fate.kind for fate in fates] == ["taken", "returned", "taken", "returned", "taken"]
    assert missing in fates[1].reason
    assert [m.properties["message_id"] for m in got(link, there)] == ["0", "2", "4"]
    again = publisher.send_raw(batch[:1], broker=gates)
    assert again == [Fate(lanes.TAKEN)], "what was returned before says nothing of the next batch"


def test_equal_messages_without_a_queue_are_all_reported(gates: str) -> None:
    batch = [RawMessage(b"same", f"missing.{uuid.uuid4().hex[:8]}")] * 3
    assert [fate.kind for fate in publisher.send_raw(batch, broker=gates)] == ["returned"] * 3


def test_message_that_is_not_mandatory_may_be_dropped(gates: str) -> None:
    message = RawMessage(b"x", f"missing.{uuid.uuid4().hex[:8]}", mandatory=False)
    assert publisher.send_raw([message], broker=gates) == [Fate(lanes.TAKEN)]


def test_full_queue_refuses_the_messages_beyond_its_length_alone(
    gates: str, link: Connection, queue: Queue
) -> None:
    full, roomy = queue(**REJECTING), queue()
    names = [full, roomy, full, full, roomy, full]
    batch = [RawMessage(str(number).encode(), name) for number, name in enumerate(names)]
    fates = publisher.send_raw(batch, broker=gates)
    assert [fate.kind for fate in fates] == [
        "taken", "taken", "taken", "refused", "taken", "refused",
    ]  # fmt: skip
    assert "refused (nack)" in fates[3].reason
    assert [bytes(m.body) for m in got(link, full)] == [b"0", b"2"]
    assert [fate.is_taken for fate in publisher.send_raw([batch[3]], broker=gates)] == [True]


def test_message_that_breaks_the_channel_is_refused_alone(
    gates: str, link: Connection, queue: Queue
) -> None:
    name, missing = queue(), f"missing.{uuid.uuid4().hex[:8]}"
    batch = [RawMessage(str(number).encode(), name) for number in range(9)]
    batch[6] = dataclasses.replace(batch[6], exchange=missing)
    fates = publisher.send_raw(batch, broker=gates)
    assert [fate.is_taken for fate in fates] == [number != 6 for number in range(9)]
    assert f"no exchange '{missing}'" in fates[6].reason
    arrived = {bytes(message.body) for message in got(link, name)}
    assert arrived == {str(number).encode() for number in range(9) if number != 6}


@pytest.mark.parametrize("gates", ["rabbitmq"], indirect=True)  # a file carries more than AMQP
def test_message_that_amqp_cannot_carry_is_refused_alone(
    gates: str, link: Connection, queue: Queue
) -> None:
    name = queue()
    good = RawMessage(b"good", name)
    odd = [
        dataclasses.replace(good, properties={"priority": 300}),
        dataclasses.replace(good, headers={"x": object()}),
        dataclasses.replace(good, properties={"message_id": "m" * 256}),
        dataclasses.replace(good, routing_key="k" * 256),
    ]
    batch = [good, *itertools.chain.from_iterable((each, good) for each in odd)]
    fates = publisher.send_raw(batch, broker=gates)
    assert [fate.is_taken for fate in fates] == [True, *[False, True] * len(odd)]
    assert all("AMQP cannot carry it" in fate.reason for fate in fates if not fate.is_taken)
    assert len(got(link, name)) == len(odd) + 1


def test_connection_that_broke_while_idle_is_replaced(
    gates: str, link: Connection, queue: Queue
) -> None:
    name = queue()
    publisher.send_raw([RawMessage(b"1", name)], broker=gates)
    publisher._lane(gates).link.connection.close()
    assert publisher.send_raw([RawMessage(b"2", name)], broker=gates) == [Fate(lanes.TAKEN)]
    assert [bytes(message.body) for message in got(link, name)] == [b"1", b"2"]


def test_broker_that_is_away_is_named_by_its_alias(settings: Any) -> None:
    settings.GATE_BROKERS = {"far": "amqp://127.0.0.1:1//"}
    with pytest.raises(
        publisher.BrokerUnavailable, match=r"1 messages not sent: far \(amqp://127.0.0.1:1//\)"
    ):
        publisher.send_raw([RawMessage(b"x", "q")], broker="far")


def test_login_that_is_refused_is_no_fault_of_a_message(settings: Any, rabbitmq_url: str) -> None:
    settings.GATE_BROKERS = {"far": rabbitmq_url.replace("guest:guest", "guest:wrong")}
    with pytest.raises(publisher.BrokerUnavailable, match="ACCESS_REFUSED"):
        publisher.send_raw([RawMessage(b"x", "q")], broker="far")


def test_unknown_alias_names_those_there_are(settings: Any) -> None:
    settings.GATE_BROKERS = {"far": "amqp://127.0.0.1:1//"}
    with pytest.raises(brokers.UnknownBroker, match=r"'near'.* expected one of default, far"):
        publisher.send_raw([RawMessage(b"x", "q")], broker="near")


def test_pauses_double_up_to_the_limit_without_an_end(settings: Any) -> None:
    settings.MUSTER = dataclasses.replace(
        settings.MUSTER, gate_backoff_seconds=0.5, gate_max_backoff_seconds=3
    )
    assert list(itertools.islice(brokers.pauses_seconds(), 6)) == [0.5, 1, 2, 3, 3, 3]


# --- the setting ----------------------------------------------------------------------------------


def test_brokers_of_gates_are_read_by_alias() -> None:
    text = "a=amqp://u:p@h1/va;amqp://u:p@h2/va, b-2=amqps://h3//,c=sqlitemq:////tmp/x.db"
    assert broker_settings.of_gates(text) == {
        "a": "amqp://u:p@h1/va;amqp://u:p@h2/va",
        "b-2": "amqps://h3//",
        "c": "sqlitemq:////tmp/x.db",
    }
    assert broker_settings.of_gates("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amqp://u:secret@h/", "does not begin with an alias"),
        ("A=amqp://u:secret@h/", "does not begin with an alias"),
        ("default=amqp://u:secret@h/", "'default' is BROKER_URL"),
        ("a=amqp://h/,a=amqp://u:secret@h/", "'a' is there twice"),
        ("a=http://u:secret@h/", "MUSTER_GATE_BROKERS, a='http://...@h/': http:// is not"),
        ("a=amqp://u:secret@h:x/", "the port is not a number"),
        ("a=amqp://u:sec,ret=secret@h/", "MUSTER_GATE_BROKERS"),
        ("a=", "this is not a URL"),
    ],
)
def test_wrong_broker_of_gates_is_named_without_its_password(text: str, said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="MUSTER_GATE_BROKERS") as refused:
        broker_settings.of_gates(text)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
