"""Alerts and dashboard of `deploy/`: about metrics that exist, and firing when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from django.conf import settings
from django.utils.module_loading import import_string

from orchestrator.core import frame, maintenance
from orchestrator.core.metrics import Histogram
from orchestrator.core.metrics.history import ENDED
from orchestrator.core.models import DLQEntry
from orchestrator.core.states import OPEN

ROOT = Path(settings.BASE_DIR)
RULES = ROOT / "deploy" / "prometheus-rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"

OF_PROMETHEUS = {"__name__", "le", "job", "instance"}


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """Those of a kind, `alert` or `record`, by their names."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule[kind]: rule for group in groups for rule in group["rules"] if kind in rule}


def alerts() -> dict[str, dict[str, Any]]:
    return rules("alert")


def described() -> dict[str, Any]:
    """Everything that Muster exports, by the names of its series."""
    series: dict[str, Any] = {}
    for path in frame.collect(lambda app: app.metrics_described):
        for metric in import_string(path):
            is_histogram = isinstance(metric, Histogram)
            suffixes = ("_bucket", "_sum", "_count") if is_histogram else ("",)
            series |= {metric.name + suffix: metric for suffix in suffixes}
    return series


def panels() -> Iterator[tuple[str, str]]:
    """The title of each panel, and each of its queries."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def expressions() -> list[str]:
    shipped = [*alerts().values(), *rules("record").values()]
    return [rule["expr"] for rule in shipped] + [expr for _, expr in panels()]


# --- what they speak of --------------------------------------------------------------------------


def test_each_metric_of_alerts_and_dashboard_is_exported() -> None:
    named = {name for text in expressions() for name in re.findall(r"\bmuster_\w+", text)}
    assert len(named) >= 20
    assert named <= described().keys()


def test_each_label_of_alerts_and_dashboard_is_one_of_its_metric() -> None:
    known = described()
    for text in expressions():
        for name, labels in re.findall(r"\b(muster_\w+)\{([^}]*)\}", text):
            used = set(re.findall(r"(\w+)=~?\"", labels))
            assert used <= {*known[name].labels, *OF_PROMETHEUS}, f"{name} in {text}"
        grouped = {label for by in re.findall(r"by \(([^)]*)\)", text) for label in by.split(", ")}
        of_all = {
            label for name in re.findall(r"\bmuster_\w+", text) for label in known[name].labels
        }
        assert grouped <= of_all | OF_PROMETHEUS, text


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("reason", {pair[0] for pair in ENDED.pairs()} | set(DLQEntry.Reason.values)),
        ("status", {pair[1] for pair in ENDED.pairs()} | OPEN | {"active"}),
        ("function", set(maintenance.functions())),
        ("health", {"warning", "stale"}),
    ],
)
def test_each_value_of_a_label_exists(label: str, known: set[str]) -> None:
    used = {
        value
        for text in expressions()
        for values in re.findall(rf'\b{label}=~?"([^"]*)"', text)
        for value in values.split("|")
    }
    assert used
    assert used <= known


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(text for _, text in panels())
    missing = {m.name for m in described().values() if not re.search(rf"\b{m.name}", shown)}
    assert missing == set()


def test_each_alert_has_a_runbook() -> None:
    pages: set[str] = set()
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor == name.lower()
        pages.add(page)
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert name in headings
    runbooks = "".join((ROOT / page).read_text() for page in pages)
    headings = re.findall(r"^### (Muster\w+)$", runbooks, re.MULTILINE)
    assert set(headings) == alerts().keys()


def test_each_series_that_the_page_on_scaling_names_is_recorded() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    section = re.findall(r"^## Scaling\n(.+?)^## ", page, re.MULTILINE | re.DOTALL)[0]
    assert set(re.findall(r"`(muster:[\w:]+)`", section)) == rules("record").keys()


# --- when they fire ------------------------------------------------------------------------------


class Case(NamedTuple):
    """Numbers of some series, one a minute, and whether an alert fires at the end."""

    alert: str
    fires: bool
    series: Mapping[str, str]
    """In promtool's notation: `3x9` is 3 ten times, `0+5x9` grows by 5 a minute."""
    minutes: int = 20


DRAINED = 'muster_dlq_letters_total{outcome="settled"}'
SCHEDULED = 'muster_executions_oldest_seconds{status="scheduled"}'
LAST_RUN = "muster_maintenance_last_run_timestamp_seconds"
REJECTED = "muster_enforcements_rejected_total"
DETECTION = "muster_staleness_detection_duration_seconds"
SUCCEEDED = 'muster_executions_ended_total{status="completed",reason="succeeded"}'
FAILED = 'muster_executions_ended_total{status="failed",reason="action_failed"}'
TIMED_OUT = 'muster_executions_ended_total{status="timeout",reason="run_timeout"}'
UNCLAIMED = 'muster_executions_ended_total{status="failed",reason="scheduled_timeout"}'

CASES = [
    Case(
        "MusterInvestigationsPileUp",
        True,
        {
            'muster_dlq_pending_investigations{reason="poison"}': "26x30",
            'muster_dlq_pending_investigations{reason="manual_dlq"}': "25x30",
        },
    ),
    Case(
        "MusterInvestigationsPileUp",
        False,
        {'muster_dlq_pending_investigations{reason="manual_dlq"}': "50x30"},
    ),
    Case(
        "MusterInvestigationsPileUp",  # not for long enough
        False,
        {'muster_dlq_pending_investigations{reason="manual_dlq"}': "0x9 60x20"},
    ),
    Case(
        "MusterInvestigationIsUrgent",
        True,
        {'muster_dlq_pending_investigations{reason="poison"}': "1x30"},
    ),
    Case(
        "MusterInvestigationIsUrgent",
        False,
        {'muster_dlq_pending_investigations{reason="queue_ttl_expired"}': "9x30"},
    ),
    Case(
        "MusterStalenessDetectionIsSlow",
        True,
        {f"{DETECTION}_sum": "0+12x30", f"{DETECTION}_count": "0+2x30"},
    ),
    Case(
        "MusterStalenessDetectionIsSlow",
        False,
        {f"{DETECTION}_sum": "0+8x30", f"{DETECTION}_count": "0+2x30"},
    ),
    Case("MusterTasksNearLimit", True, {'muster_tasks_near_limit{health="warning"}': "11x30"}),
    Case(
        "MusterTasksNearLimit",
        False,
        {
            'muster_tasks_near_limit{health="warning"}': "10x30",
            'muster_tasks_near_limit{health="stale"}': "90x30",
        },
    ),
    Case(
        "MusterTasksGoStale",
        True,
        {'muster_staleness_tasks_detected_total{reason="duration"}': "0+660x30"},
    ),
    Case(
        "MusterTasksGoStale",
        False,
        {'muster_staleness_tasks_detected_total{reason="duration"}': "0+540x30"},
    ),
    Case(
        "MusterDeadLettersComeFast",
        True,
        {
            'muster_dlq_letters_total{outcome="settled"}': "0+6x30",
            'muster_dlq_letters_total{outcome="returned"}': "0+6x30",
        },
    ),
    Case(
        "MusterDeadLettersComeFast",
        False,
        {'muster_dlq_letters_total{outcome="settled"}': "0+9x30"},
    ),
    Case("MusterDeadLettersPileUp", True, {"muster_dlq_depth": "101x30"}),
    Case("MusterDeadLettersPileUp", False, {"muster_dlq_depth": "100x30"}),
    Case(
        "MusterDrainHasStopped",
        True,
        {f'{LAST_RUN}{{function="muster.drain_dead_letters"}}': "0x30"},
    ),
    Case(
        "MusterDrainHasStopped",
        False,
        {f'{LAST_RUN}{{function="muster.drain_dead_letters"}}': "0+60x30"},
    ),
    Case("MusterDeadLettersStay", True, {"muster_dlq_depth": "0 1x30"}),
    Case(
        "MusterDeadLettersStay",  # those that came before were drained
        True,
        {DRAINED: "0+9x5 54x30", "muster_dlq_depth": "1x40"},
    ),
    Case("MusterDeadLettersStay", False, {"muster_dlq_depth": "1x30", DRAINED: "0+3x30"}),
    Case("MusterDeadLettersStay", False, {"muster_dlq_depth": "1x2 0 1x2 0 1x2 0 1x2 0 1x2 0 1x9"}),
    Case("MusterExecutionsFail", True, {SUCCEEDED: "0+70x30", FAILED: "0+30x30"}),
    Case("MusterExecutionsFail", False, {SUCCEEDED: "0+90x30", FAILED: "0+10x30"}),
    Case("MusterExecutionsFail", False, {FAILED: "0+1x30"}),  # a few
    Case("MusterExecutionsTimeOut", True, {TIMED_OUT: "0+6x30", UNCLAIMED: "0+6x30"}),
    Case("MusterExecutionsTimeOut", False, {TIMED_OUT: "0+9x30", FAILED: "0+99x30"}),
    Case(
        "MusterExecutionsWaitForTheirWorker",
        True,
        {SCHEDULED: "59+60x4 0x9"},  # one alone, which ends at 300 s, as it does by default
        minutes=4,
    ),
    Case("MusterExecutionsWaitForTheirWorker", True, {SCHEDULED: "1+60x4 0x9"}, minutes=4),
    Case(
        "MusterExecutionsWaitForTheirWorker",
        False,
        {
            SCHEDULED: "240x30",
            'muster_executions_oldest_seconds{status="running"}': "9000x30",
        },
    ),
    Case("MusterEventsWait", True, {"muster_events_oldest_unevaluated_seconds": "0+60x30"}),
    Case("MusterEventsWait", False, {"muster_events_oldest_unevaluated_seconds": "20x30"}),
    Case("MusterEnforcementsWait", True, {"muster_enforcements_oldest_open_seconds": "0+60x30"}),
    Case("MusterEnforcementsWait", False, {"muster_enforcements_oldest_open_seconds": "20x30"}),
    Case(
        "MusterEnforcementsAreRejected", True, {f'{REJECTED}{{reason="owner_refused"}}': "0+3x30"}
    ),
    Case(
        "MusterEnforcementsAreRejected",
        False,
        {
            f'{REJECTED}{{reason="owner_refused"}}': "0+1x30",
            f'{REJECTED}{{reason="criteria_failed"}}': "0+1x30",
        },
    ),
    Case("MusterTimersAreLate", True, {"muster_timers_late_seconds": "0+60x30"}),
    Case("MusterTimersAreLate", False, {"muster_timers_late_seconds": "30x30"}),
    Case("MusterSensorsDoNotRun", True, {'muster_sensors{state="backing_off"}': "1x30"}),
    Case("MusterSensorsDoNotRun", False, {'muster_sensors{state="running"}': "1x30"}),
    Case("MusterGateUntold", True, {'muster_gate_oldest_untold_seconds{queue="a"}': "0+60x30"}),
    Case("MusterGateUntold", False, {'muster_gate_oldest_untold_seconds{queue="a"}': "20x30"}),
    Case("MusterGateHasNoKeeper", True, {'muster_gate_untold{queue="a"}': "3x30"}),
    Case(
        "MusterGateHasNoKeeper",
        False,
        {'muster_gate_untold{queue="a"}': "3x30", 'muster_gate_keepers{broker="default"}': "1x30"},
    ),
    Case("MusterGateCutOff", True, {'muster_gate_cut_off{queue="a"}': "1x30"}),
    Case("MusterGateCutOff", False, {'muster_gate_untold{queue="a"}': "3x30"}),
    Case("MusterNoActiveWorkers", True, {"muster_workers_eligible": "0x30"}),
    Case("MusterNoActiveWorkers", False, {"muster_workers_eligible": "1x30"}),
    Case("MusterExecutionOverdue", True, {"muster_executions_overdue": "1x30"}),
    Case("MusterExecutionOverdue", False, {"muster_executions_overdue": "0x30"}),
    Case(
        "MusterMaintenanceHasStopped",
        True,
        {f'{LAST_RUN}{{function="muster.check_timeouts"}}': "0x30"},
    ),
    Case(
        "MusterMaintenanceHasStopped",
        False,
        {
            f'{LAST_RUN}{{function="muster.check_timeouts"}}': "0+60x30",
            f'{LAST_RUN}{{function="muster.prune"}}': "0x30",
        },
    ),
    Case("MusterBrokerIsDown", True, {"muster_broker_up": "0x30"}),
    Case("MusterBrokerIsDown", False, {"muster_broker_up": "1x30"}),
    Case("MusterCountersLag", True, {"muster_history_counted_timestamp_seconds": "0x30"}),
    Case("MusterCountersLag", False, {"muster_history_counted_timestamp_seconds": "0+60x30"}),
    Case("MusterMetricsAreMissing", True, {"muster_workers_eligible": "1x5"}),
    Case("MusterMetricsAreMissing", False, {"muster_workers_eligible": "0x30"}),
]


SCALING = {
    "interval": "1m",
    "name": "what an autoscaler reads, in an installation without policies",
    "input_series": [
        {"series": f"muster_executions_open{labels}", "values": "0+7x20"}
        for labels in ('{status="requested"}', '{status="running"}', '{status="canceling"}')
    ]
    + [
        {"series": "muster_executions_deferred", "values": "40x20"},
        {
            "series": 'muster_queue_messages{queue="muster.execution.requests.queue"}',
            "values": "9x20",
        },
        {"series": 'muster_queue_messages{queue="muster.maintenance.queue"}', "values": "3x20"},
    ],
    "promql_expr_test": [
        {
            "expr": f"{name} + 0",
            "eval_time": "10m",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for name, value in (("muster:slots_wanted", 100), ("muster:messages_for_executors", 9))
    ],
}


def test_each_alert_has_numbers_that_fire_it_and_numbers_that_do_not() -> None:
    for fires in (True, False):
        assert {case.alert for case in CASES if case.fires is fires} == alerts().keys()


def test_the_rules_are_correct_and_fire_as_they_should(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: deploy/install-test-servers.sh installs it")
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [*(_of_promtool(case) for case in CASES), SCALING],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(tests))
    for arguments in (
        ["check", "rules", str(RULES)],
        ["test", "rules", str(path)],
    ):
        done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _of_promtool(case: Case) -> dict[str, Any]:
    firing = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
    return {
        "interval": "1m",
        "name": f"{case.alert} fires: {case.fires}",
        "input_series": [
            {"series": series, "values": values} for series, values in case.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count({firing}) or vector(0)",
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
            }
        ],
    }
