"""/metrics: true of the whole installation, for those who may."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils.module_loading import import_string
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.core import clock, frame, investigations, metrics
from orchestrator.core.metrics import exposition
from orchestrator.core.models import DLQEntry, Tick
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.maintenance import detect_stale_tasks
from orchestrator.workflows.states import TaskState
from settings import muster
from tests import principals
from tests.factories import NOW, make_dlq_entry, make_execution, make_task, make_worker

pytestmark = pytest.mark.django_db

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _open_to_this_host(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, metrics_access="loopback")


def get(**headers: str) -> Any:
    return Client().get("/metrics", headers=headers)


def scraped() -> Samples:
    response = get()
    assert response.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


# --- numbers -------------------------------------------------------------------------------------


def test_what_has_not_happened_yet_is_zero() -> None:
    samples = scraped()
    for reason in DLQEntry.Reason.values:
        assert value(samples, "muster_dlq_entries_created_total", reason=reason) == 0
        assert value(samples, "muster_dlq_pending_investigations", reason=reason) == 0
        assert value(samples, "muster_dlq_time_in_queue_hours_count", reason=reason) == 0
    assert value(samples, "muster_staleness_detection_runs_total") == 0
    assert value(samples, "muster_executions_open", status="running") == 0


def test_investigations_are_counted_by_their_reason() -> None:
    execution = make_execution()
    entry = investigations.open_manually(
        "execution", execution.pk, detail="d", now=NOW, actor="ada"
    )
    samples = scraped()
    assert value(samples, "muster_dlq_entries_created_total", reason="manual_dlq") == 1
    assert value(samples, "muster_dlq_pending_investigations", reason="manual_dlq") == 1
    investigations.close(
        entry.dlq_entry_uuid,
        resolution=DLQEntry.Resolution.MANUALLY_RESOLVED,
        now=NOW + timedelta(hours=3),
        actor="ada",
    )
    samples = scraped()
    assert value(samples, "muster_dlq_entries_created_total", reason="manual_dlq") == 1
    assert value(samples, "muster_dlq_pending_investigations", reason="manual_dlq") == 0
    hours = "muster_dlq_time_in_queue_hours"
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="2") == 0
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="4") == 1
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="+Inf") == 1
    assert value(samples, f"{hours}_sum", reason="manual_dlq") == 3
    assert value(samples, f"{hours}_count", reason="manual_dlq") == 1


def test_stale_tasks_are_counted_by_their_limit() -> None:
    make_task(TaskState.STEPS_IN_PROCESS, clock_started_at=NOW - timedelta(minutes=31))
    detect_stale_tasks(now=NOW)
    detect_stale_tasks(now=NOW)
    samples = scraped()
    for name in ("detected", "transitioned_to_error"):
        full = f"muster_staleness_tasks_{name}_total"
        assert value(samples, full, reason="steps_in_process") == 1
        assert value(samples, full, reason="duration") == 0
    assert value(samples, "muster_staleness_detection_runs_total") == 2
    assert value(samples, "muster_staleness_detection_duration_seconds_count") == 2


def test_gauges_tell_of_executions_tasks_workers_and_maintenance() -> None:
    now = clock.now()
    worker = make_worker(now=now)
    make_execution(ExecutionStatus.RUNNING, worker=worker, now=now)
    make_execution(now=now, created_at=now - timedelta(days=2))
    make_execution(ExecutionStatus.COMPLETED, worker=worker, now=now)
    make_task(TaskState.WAITING_FOR_RETRY, now=now)
    Tick.objects.create(name="muster.check_timeouts", ran_at=NOW)
    samples = scraped()
    assert value(samples, "muster_executions_open", status="running") == 1
    assert value(samples, "muster_executions_open", status="requested") == 1
    assert value(samples, "muster_executions_overdue") == 1
    assert value(samples, "muster_tasks_open", state="waiting_for_retry") == 1
    assert value(samples, "muster_workers", status="active") == 1
    assert value(samples, "muster_workers_eligible") == 1
    at = "muster_maintenance_last_run_timestamp_seconds"
    assert value(samples, at, function="muster.check_timeouts") == NOW.timestamp()


def test_ages_are_those_of_the_oldest() -> None:
    now = clock.now()
    worker = make_worker(now=now)
    for minutes in (2, 7):
        make_execution(
            ExecutionStatus.SCHEDULED,
            worker=worker,
            now=now,
            scheduled_at=now - timedelta(minutes=minutes),
            created_at=now - timedelta(minutes=30),
        )
    make_dlq_entry(now=now - timedelta(hours=2))
    samples = scraped()
    oldest = "muster_executions_oldest_seconds"
    assert value(samples, oldest, status="scheduled") == pytest.approx(420, abs=60)
    assert value(samples, oldest, status="running") == 0
    pending = "muster_dlq_oldest_pending_seconds"
    assert value(samples, pending, reason="queue_ttl_expired") == pytest.approx(7200, abs=60)
    assert value(samples, pending, reason="poison") == 0


def test_a_broker_that_is_away_costs_its_own_numbers_alone(settings: Any) -> None:
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    samples = scraped()
    assert value(samples, "muster_broker_up") == 0
    assert not [
        name for name, _ in samples if name.startswith(("muster_queue_", "muster_dlq_depth"))
    ]
    assert value(samples, "muster_workers_eligible") == 0


def test_what_is_described_is_what_is_exported() -> None:
    exported = {family.name for family in exposition._Collector(clock.now()).collect()}
    described = {
        metric.name.removesuffix("_total")
        for path in frame.collect(lambda app: app.metrics_described)
        for metric in import_string(path)
    }
    assert exported == described


def test_values_beyond_every_bucket_are_counted() -> None:
    metrics.DLQ_HOURS.observe([("manual_dlq", 0.1), ("manual_dlq", 10_000)])
    samples = scraped()
    hours = "muster_dlq_time_in_queue_hours"
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="0.1") == 1
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="168") == 1
    assert value(samples, f"{hours}_bucket", reason="manual_dlq", le="+Inf") == 2


def test_openmetrics_are_given_to_who_asks_for_them() -> None:
    response = get(accept="application/openmetrics-text; version=1.0.0")
    assert response["Content-Type"].startswith("application/openmetrics-text")
    assert response.content.endswith(b"# EOF\n")


# --- who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("access", "address", "headers", "status"),
    [
        ("loopback", "127.0.0.1", {}, 200),
        ("loopback", "::1", {}, 200),
        ("loopback", "192.0.2.7", {}, 401),
        ("loopback", "", {}, 401),
        ("loopback", "127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 401),
        ("loopback", "127.0.0.1", {"forwarded": "for=127.0.0.1"}, 401),
        ("token", "127.0.0.1", {}, 401),
        ("anyone", "192.0.2.7", {}, 200),
    ],
)
def test_who_needs_a_token(
    settings: Any, access: str, address: str, headers: dict[str, str], status: int
) -> None:
    settings.MUSTER = replace(settings.MUSTER, metrics_access=access)
    token = principals.token("prometheus", principals.given("viewer"))
    client = Client(REMOTE_ADDR=address, headers=headers)
    assert client.get("/metrics").status_code == status
    with_token = client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    assert with_token.status_code == 200


def test_a_token_is_needed_unless_a_setting_says_otherwise() -> None:
    assert muster.from_environment({}).metrics_access == "token"


def test_only_reading_is_possible() -> None:
    assert Client().post("/metrics").status_code == 405


def test_unknown_access_is_refused_at_the_start() -> None:
    with pytest.raises(Exception, match="MUSTER_METRICS_ACCESS='all': expected loopback, token"):
        muster.from_environment({"MUSTER_METRICS_ACCESS": "all"})
