"""The topology: every queue has an owner that consumes it, and every name one spelling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from django_celery_beat.models import PeriodicTask

from orchestrator.core import brokers, declarations, maintenance, messages, topology
from orchestrator.core.topology import QueueSpec
from orchestrator.workflows.messages import REQUESTED
from settings.celery import app
from tasks import app_parts
from tasks.queues import UnknownQueue

OWNERS = {"executor", "worker"}
DLX = "muster.dlx"


def every_queue() -> list[QueueSpec]:
    return [*topology.shared_queues(), *topology.worker_queues(7)]


def test_every_published_task_is_a_registered_task() -> None:
    app.loader.import_default_modules()
    published = {messages.SCHEDULE, messages.COMPLETED, messages.RUN, messages.CANCEL}
    published |= {part.queue.message for part in app_parts.parts()}
    assert published <= set(app.tasks)


def test_every_scheduled_task_is_a_registered_task() -> None:
    app.loader.import_default_modules()
    assert set(maintenance.functions()) <= set(app.tasks)


@pytest.mark.django_db
def test_beat_sends_what_it_schedules_to_the_maintenance_queue() -> None:
    assert app.conf.task_default_queue == topology.maintenance_queue().name
    for task in PeriodicTask.objects.filter(task__startswith="muster."):
        assert (task.queue, task.exchange, task.routing_key) == (None, None, None)


@pytest.mark.parametrize("spec", every_queue(), ids=lambda spec: spec.name)
def test_every_queue_has_an_owner_a_purpose_and_a_binding(spec: QueueSpec) -> None:
    assert spec.owner in OWNERS
    assert spec.purpose
    assert spec.routing_key
    if spec.exchange:
        assert spec.exchange in topology.exchange_purposes()
    else:
        assert spec.routing_key == spec.name, "the default exchange knows queues by their names"
    queue = spec.queue()
    assert queue.durable
    assert not queue.auto_delete
    assert "x-expires" not in spec.arguments, "an expired queue dead-letters nothing"
    assert topology.find(spec.name) == spec


def test_ttl_and_dead_letter_exchange_are_where_they_are_said_to_be() -> None:
    arguments = {spec.name: spec.arguments for spec in every_queue()}
    assert arguments == {
        "muster.execution.requests.queue": {"x-dead-letter-exchange": DLX},
        "muster.execution.completed.queue": {"x-dead-letter-exchange": DLX},
        "muster.inquiry.responses.queue": {"x-dead-letter-exchange": DLX},
        "muster.tasks.queue": {"x-dead-letter-exchange": DLX},
        "muster.events.queue": {"x-dead-letter-exchange": DLX},
        "muster.execution.status.queue": {"x-dead-letter-exchange": DLX},
        "muster.bulk.orders.queue": {"x-dead-letter-exchange": DLX},
        "muster.enforcements.queue": {"x-dead-letter-exchange": DLX},
        "muster.maintenance.queue": {"x-max-length": 1_000},
        "muster.dlx.queue": {"x-message-ttl": 86_400_000},
        "worker.7.executions": {"x-message-ttl": 300_000, "x-dead-letter-exchange": DLX},
        "worker.7.cancel": {"x-dead-letter-exchange": DLX},
    }


def test_type_of_the_setting_is_that_of_every_queue(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, queue_type="quorum")
    for spec in every_queue():
        assert spec.arguments["x-queue-type"] == "quorum"
        assert spec.arguments["x-delivery-limit"] == 1_000_000_000
        assert topology.find(spec.name) == spec


def test_dead_letters_are_not_dead_lettered() -> None:
    assert "x-dead-letter-exchange" not in topology.dead_letter_queue().arguments
    assert topology.exchange_purposes()[topology.dead_letter_exchange()][0] == "topic"


@pytest.mark.parametrize(
    ("message", "queue"),
    [
        (messages.requested, topology.requests_queue),
        (messages.completed, topology.completed_queue),
    ],
)
def test_what_is_published_about_executions_is_bound(message: Any, queue: Any) -> None:
    (sent,) = message(["01890000-0000-7000-8000-000000000000"])
    assert sent.routing_key == queue().routing_key


def test_what_is_published_to_a_worker_is_bound() -> None:
    dispatch = messages.dispatch([(UUID(int=1), 1)], worker_id=7)
    assert dispatch.routing_key == topology.worker_queue(7).routing_key
    cancel = messages.cancel(execution_id=UUID(int=1), attempt=1, worker_id=7)
    assert cancel.routing_key == topology.cancel_queue(7).routing_key


@pytest.mark.parametrize(
    ("name", "worker_id"),
    [
        ("worker.7.executions", 7),
        ("worker.007.executions", 7),
        ("worker.7.cancel", None),
        ("worker.seven.executions", None),
        ("worker.7.executions.more", None),
        ("muster.dlx.queue", None),
    ],
)
def test_worker_of_a_queue_is_read_from_its_name(name: str, worker_id: int | None) -> None:
    assert topology.worker_id_of(name) == worker_id


def test_namespace_is_in_every_shared_name(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, namespace="blue")
    assert all(spec.name.startswith("blue.") for spec in topology.shared_queues())
    assert topology.worker_queue(7).exchange == "blue.executions"


def test_namespace_is_in_the_names_of_workers_queues_but_for_the_default_one(
    settings: Any,
) -> None:
    settings.MUSTER = replace(settings.MUSTER, namespace="blue-2")
    names = [spec.name for spec in topology.worker_queues(7)]
    assert names == ["blue-2.worker.7.executions", "blue-2.worker.7.cancel"]
    assert [topology.find(name) for name in names] == topology.worker_queues(7)
    assert topology.worker_id_of(names[0]) == 7
    for foreign in (
        "worker.7.executions",
        "blue.worker.7.executions",
        "x.blue-2.worker.7.executions",
        "blue-2xworker.7.executions",
    ):
        assert topology.worker_id_of(foreign) is None
        assert topology.find(foreign) is None


def test_queues_that_messages_need_are_found_by_their_routing_keys() -> None:
    workers = topology.needed_by([topology.dispatch_key(7), topology.cancel_key(7)])
    assert workers == topology.worker_queues(7)
    assert topology.needed_by([topology.REQUESTED]) == topology.hot_queues()
    both = topology.needed_by([REQUESTED, topology.dispatch_key(3)])
    assert both == [*topology.hot_queues(), *topology.worker_queues(3)]


def test_former_queues_of_a_worker_get_nothing_any_more(channel: Any, settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, namespace="blue")
    topology.declare(channel, topology.worker_queues(7))
    channel.queue_declare("worker.7.executions", durable=True, auto_delete=False)
    channel.queue_bind(
        "worker.7.executions", topology.executions_exchange(), topology.dispatch_key(7)
    )
    topology.unbind_former(channel, 7)
    channel.basic_publish(
        channel.prepare_message(b"x"), topology.executions_exchange(), topology.dispatch_key(7)
    )
    counts = [
        channel.queue_declare(name, passive=True).message_count
        for name in ("worker.7.executions", "blue.worker.7.executions")
    ]
    assert counts == [0, 1]


# --- Celery --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", every_queue(), ids=lambda spec: spec.name)
def test_celery_consumes_every_queue_with_the_arguments_of_the_topology(spec: QueueSpec) -> None:
    queues = app.amqp.Queues([])
    queues.select([spec.name])
    (queue,) = queues.consume_from.values()
    assert queue.queue_arguments == spec.arguments
    assert (queue.exchange.name, queue.routing_key) == (spec.exchange, spec.routing_key)


@pytest.mark.parametrize("name", ["celery", "worker.x.executions", "muster.maintenance", ""])
def test_unknown_queue_is_refused_and_not_made_up(name: str) -> None:
    assert topology.find(name) is None
    with pytest.raises(UnknownQueue, match="no queue called"):
        app.amqp.queues[name]


# --- declaring -----------------------------------------------------------------------------------


def test_declaring_twice_is_harmless_and_includes_the_dead_letter_queue(channel: Any) -> None:
    for _ in range(2):
        topology.declare(channel, topology.worker_queues(7))
    for spec in [*topology.worker_queues(7), topology.dead_letter_queue()]:
        channel.queue_declare(spec.name, passive=True)
    with pytest.raises(NotFound):
        channel.queue_declare(topology.requests_queue().name, passive=True)


def test_queue_with_other_arguments_is_refused_by_the_broker(channel: Any, settings: Any) -> None:
    topology.declare(channel, topology.worker_queues(7))
    settings.MUSTER = replace(settings.MUSTER, worker_queue_ttl_ms=200_000)
    with pytest.raises(PreconditionFailed, match="x-message-ttl"):
        topology.declare(channel, topology.worker_queues(7))
    with (
        brokers.connection() as link,
        pytest.raises(declarations.TopologyDiffers) as differs,
    ):
        declarations.declare(link, topology.worker_queues(7))
    assert str(differs.value) == (
        "queue worker.7.executions: x-message-ttl: wanted 200000, found 300000\n"
        "Stop who consumes them, then: manage.py topology migrate"
    )


def test_shared_queue_that_differs_is_named_and_not_the_ones_that_were_asked_for(
    channel: Any, settings: Any
) -> None:
    topology.declare(channel, [])
    settings.MUSTER = replace(settings.MUSTER, dlx_queue_ttl_ms=60_000)
    with (
        brokers.connection() as link,
        pytest.raises(declarations.TopologyDiffers) as differs,
    ):
        declarations.declare(link, topology.worker_queues(7))
    told = str(differs.value).splitlines()[0]
    assert told == "queue muster.dlx.queue: x-message-ttl: wanted 60000, found 86400000"
