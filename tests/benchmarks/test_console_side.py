"""What the benchmark of the console looks at: every page, each with something to show."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.urls import resolve

from benchmarks import (
    console_fill,
    console_names,
    console_side,
    muster_side,
    pages_side,
    workflow_side,
)
from orchestrator.console import urls
from orchestrator.core.models import Execution
from tests.factories import NOW, make_execution
from tests.rollups.conftest import note_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NO_PAGES = {
    "act", "order", "save-search", "remove-search", "execution-act", "end-task", "repair",
    "triage_close_cause", "triage_close", "triage_note", "queue_order", "bulk_do", "bulk_stop",
    "rule_act", "replay", "periodic_act", "cancel_inquiry", "sensor_act", "policy_act", "live",
    "execution-output", "timer_act",
}  # fmt: skip
"""Addresses that forms are sent to, the stream, and a part of a page that needs its place."""


@pytest.fixture(params=["postgresql"])
def database(request: pytest.FixtureRequest, database: str) -> str:
    return database


@pytest.fixture
def filled(database: str) -> None:
    """Very little of everything that the benchmark has much of."""
    muster_side.prepare()
    note_end(make_execution("completed", now=NOW))
    muster_side.fill(count=300)
    pages_side.vary()
    workflow_side.install_templates(sizes=[2])
    pages_side.fill_others(count=20)
    console_fill.fill_console(workers=3)


def test_every_page_is_looked_at_and_has_its_cost(filled: None) -> None:
    paths = console_side.console_paths()
    looked_at = {resolve(urlsplit(path).path).url_name for path in paths.values()}
    assert looked_at == {each.name for each in urls.urlpatterns} - NO_PAGES
    assert paths.keys() > {*console_names.TABLES, *console_names.LARGE}

    found = {name: console_side.look_at_console(path=path, count=1) for name, path in paths.items()}
    for name, page in found.items():
        assert len(page["times_ms"]) == 1, name
        assert page["statements"] >= page["statements_after"] > 0, name
        assert page["size"] >= page["gzipped"] > 0, name
    for name in console_names.TABLES:
        assert found[name]["size"] > 5_000, name


def test_a_first_visit_loads_what_scripts_load(filled: None) -> None:
    requests, size, sent = console_side.first_visit()
    assert requests == 5, "a style and four scripts"
    assert size > 2 * sent > 0
    assert Execution.objects.exists()
