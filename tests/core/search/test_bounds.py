"""What a search reads: an index, or a bounded number of rows of a bounded time, which it says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from orchestrator.core import cursors, search
from orchestrator.core import database as databases
from orchestrator.core.models import Action, Execution
from orchestrator.core.models.time_ordered import made_at
from orchestrator.core.search import finding
from orchestrator.core.search.finding import Stop
from tests.core.search.conftest import fill, id_of
from tests.factories import NOW, make_action, make_execution
from tests.principals import ROOT

ASKED = search.Asked(ROOT, NOW)


def page(text: str, below: UUID | None = None, **options: Any) -> search.Found:
    rows = options.pop("rows", Execution.objects.all())
    wanted = search.read(text, ASKED)
    return search.find(wanted, rows, limit=options.pop("limit", 50), below=below, **options)


def after(found: search.Found) -> UUID:
    assert found.next_cursor is not None
    return cursors.read(found.next_cursor, UUID)


def make(age: timedelta, status: str = "failed", **values: Any) -> Execution:
    at = NOW - age
    return make_execution(status, pk=id_of(at, 1), created_at=at, **values)


HOUR = timedelta(hours=1)


# --- the window ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_scan_looks_at_24_hours_before_the_newest_row_and_its_cursor_leads_on() -> None:
    oldest, gap, early, new = (make(HOUR * age) for age in (900, 30, 20, 2))
    first = page("status:failed")
    assert first.rows == [new, early]
    assert first.looked_at == search.LookedAt(Stop.WINDOW, made_at(new.pk) - 24 * HOUR)
    assert first.looked_at.text == "Looked at 24 h, back to 2026-02-28 10:00:00 UTC."
    second = page("status:failed", after(first))
    assert second.rows == [gap]
    third = page("status:failed", after(second))
    assert (third.rows, third.next_cursor) == ([oldest], None)
    assert third.looked_at == search.LookedAt(Stop.END, None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("created", "ages"),
    [("<24h", [2, 20]), ("<40h", [2, 20, 30]), (">=30h", [30, 900]), ("2026-02-28", [20, 30])],
)
def test_the_time_that_a_search_names_is_its_window(created: str, ages: list[int]) -> None:
    made = {age: make(HOUR * age) for age in (900, 30, 20, 2)}
    found = page(f"status:failed created:{created}")
    assert found.rows == [made[age] for age in ages]
    assert (found.next_cursor, found.looked_at) == (None, search.LookedAt(Stop.END, None))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text", ["status:failed", "-status:open", "worker:w1", "message:x", "param.a:1", "ran:>1s"]
)
def test_a_scan_looks_at_a_bounded_number_of_rows(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 3)
    wanted = [make(HOUR, result={"message": "x"}, parameters={"a": 1})]
    made = [make(HOUR - timedelta(seconds=n), "requested") for n in range(1, 9)]
    pages: list[search.Found] = []
    below: UUID | None = None
    while not pages or pages[-1].next_cursor:
        pages.append(page(text, below))
        below = after(pages[-1]) if pages[-1].next_cursor else None
    assert [row for each in pages for row in each.rows] == wanted
    assert [each.looked_at and each.looked_at.stopped_by for each in pages] == [
        *[Stop.ROWS, Stop.ROWS, Stop.ROWS],
        Stop.END,
    ]
    assert pages[0].looked_at == search.LookedAt(Stop.ROWS, made_at(made[-3].pk))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text", ["action:core.*", "core.echo", "status:open", "correlation:c1 worker:w1", "created:<9d"]
)
def test_what_an_index_leads_to_is_found_however_old_it_is(text: str) -> None:
    make(HOUR * 2, "scheduled", action=make_action("core.echo"), correlation_id="c1")
    old = make(HOUR * 90, "scheduled", correlation_id="c1")
    found = page(text)
    assert (len(found.rows), found.rows[-1], found.looked_at) == (2, old, None)
    first = page(text, limit=1)
    assert page(text, after(first), limit=1).rows == [old]


@pytest.mark.django_db
def test_filters_beside_a_search_make_it_scan_unless_it_leads_to_few() -> None:
    make(HOUR * 2, correlation_id="c1")
    old = make(HOUR * 90, correlation_id="c1")
    assert len(page("action:core.echo", scans=True).rows) == 1
    assert page("correlation:c1", scans=True).rows[-1] == old


# --- the time ------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_slice_is_as_large_as_the_time_left_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SLICE", "FIRST_COMPARED"):
        monkeypatch.setattr(finding, name, 2)
    for n in range(9):
        make(timedelta(seconds=n + 1), "requested")
    sizes: list[int] = []
    real = finding._floor

    def noted(among: Any, below: Any, end: Any, size: int) -> UUID | None:
        sizes.append(size)
        return real(among, below, end, size)

    monkeypatch.setattr(finding, "_floor", noted)
    assert page("status:failed").next_cursor is None
    assert sizes[0] == 2
    assert sizes[1] > 7


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_search_that_takes_too_long_says_how_far_it_came(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_SLICE", "FIRST_COMPARED"):
        monkeypatch.setattr(finding, name, 2)
    monkeypatch.setattr(finding, "SECONDS", 0.5)
    made = [make(timedelta(seconds=n + 1)) for n in range(9)]
    hangs = Execution.objects.extra(
        where=[
            "CASE WHEN orchestrator_execution.id < %s THEN pg_sleep(9) IS NOT NULL ELSE true END"
        ],
        params=[made[1].pk],
    )
    found = page("status:failed", rows=hangs)
    assert found.rows == made[:2]
    assert found.looked_at == search.LookedAt(Stop.SECONDS, made_at(made[1].pk))
    assert found.looked_at.text.startswith("Looked for 0.5 s, back to")
    with pytest.raises(search.SearchTookTooLong, match="created:<1h"):
        page("status:failed", after(found), rows=hangs)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_limit_of_time_ends_with_its_block(database: str) -> None:
    before = _shown("statement_timeout")
    with databases.answering_within(0.02):
        assert _shown("statement_timeout") == "20ms"
    with pytest.raises(databases.TookTooLong), databases.answering_within(0.02):
        list(Action.objects.raw("SELECT 1 AS id FROM pg_sleep(9)"))
    assert _shown("statement_timeout") == before


def _shown(setting: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        return str(cursor.fetchone()[0])


# --- the plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_each_term_with_an_index_is_read_through_it(database: str) -> None:
    rows = fill(400)
    some = rows[200]
    plans = {
        "action:core.echo": "execution_by_action",
        "core.shell": "execution_by_action",
        "correlation:batch-9": "execution_by_correlation",
        "status:open": "execution_open",
        "status:running worker:w1": "execution_open",
        "created:<1h": "orchestrator_execution_pkey",
        "created:2026-02-27": "orchestrator_execution_pkey",
        str(some.pk): "orchestrator_execution_pkey",
        str(some.pk)[:13]: "orchestrator_execution_pkey",
        f"{str(some.pk)[:13]}…{str(some.pk)[-4:]}": "orchestrator_execution_pkey",
    }
    for text, index in plans.items():
        wanted = search.read(text, ASKED)
        assert not wanted.scans, text
        assert _indexes_in(Execution.objects.filter(wanted.q).order_by()) == {index}, text


def _indexes_in(rows: Any) -> set[str]:
    """The indexes that look for something, in PostgreSQL's plan; fails for one that reads all."""
    sql, parameters = rows.values("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", parameters)
        (plan,) = cursor.fetchone()
    waiting: list[dict[str, Any]] = [each["Plan"] for each in plan]
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        assert node["Node Type"] != "Seq Scan"
        if "Index Name" in node:
            assert "Index Cond" in node or node["Index Name"] == "execution_open"
            found.add(node["Index Name"])
    return found
