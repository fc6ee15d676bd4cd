"""Rollups as a Django app: what it brings to the frame."""

from orchestrator.core.frame import Maintenance, MusterApp, Named, Retention, SearchKey

AT_ONCE = 2_000


def _old(model: str, name: str, days: str, time: str = "start") -> Retention:
    return Retention(
        name=name,
        days=days,
        model=f"rollups.{model}",
        ended=time,
        old=Named(f"orchestrator.rollups.retention.{name}"),
        at_once=AT_ONCE,
    )


class RollupsConfig(MusterApp):
    name = "orchestrator.rollups"
    verbose_name = "Rollups"

    maintenance = (
        Maintenance(
            "muster.roll_up",
            Named("orchestrator.rollups.minutes.roll_up"),
            "Adds what happened to executions to the numbers over time, and to causes of failures.",
            is_slow=True,
        ),
    )
    retention = (
        Retention(
            name="causes",
            days="keep_causes_days",
            model="rollups.FailureGroup",
            ended="last",
            old=Named("orchestrator.rollups.retention.causes"),
            parts=("rollups.FailureCount.group", "rollups.Failure.group"),
        ),
        _old("Failure", "failures", "keep_causes_days", "at"),
        _old("FailureCount", "failure_counts", "keep_causes_days"),
        _old("Arrivals", "fine_arrivals", "keep_minutes_days"),
        _old("Arrivals", "hourly_arrivals", "keep_hours_days"),
        _old("Durations", "fine_durations", "keep_minutes_days"),
        _old("Durations", "hourly_durations", "keep_hours_days"),
    )
    search_keys = (
        SearchKey(
            "cause",
            "It failed of this cause, by the number that its page has",
            "cause:7",
            Named("orchestrator.rollups.terms.read"),
        ),
    )
    metrics = (Named("orchestrator.rollups.metrics.families"),)
    metrics_described = ("orchestrator.rollups.metrics.METRICS",)
    table_rights = ("orchestrator.rollups.rights.TABLES",)
