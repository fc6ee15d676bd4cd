"""A search finds the rows that its terms mean, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from orchestrator.core import cursors, search
from orchestrator.core.models import Action, Execution
from tests.core.search import naive
from tests.core.search.conftest import SCHEMA, fill
from tests.factories import NOW, make_execution
from tests.principals import ROOT

ASKED = search.Asked(ROOT, NOW)


@pytest.fixture
def rows(database: str) -> list[Execution]:
    made = fill()
    Action.objects.filter(ref="core.echo").update(parameters_schema=SCHEMA)
    Action.objects.exclude(ref="core.echo").update(parameters_schema=SCHEMA)
    return made


def pages(text: str, limit: int = 20) -> Iterator[search.Found]:
    wanted, below = search.read(text, ASKED), None
    while True:
        found = search.find(wanted, Execution.objects.all(), limit=limit, below=below)
        yield found
        if found.next_cursor is None:
            return
        below = cursors.read(found.next_cursor, UUID)


def ids(text: str) -> list[UUID]:
    return [row.pk for page in pages(text) for row in page.rows]


def expected(query: list[str], rows: list[Execution]) -> list[UUID]:
    return [row.pk for row in reversed(naive.matching(query, rows))]


def test_every_term_and_its_opposite_finds_the_rows_of_a_naive_filter(
    rows: list[Execution],
) -> None:
    for term in naive.TERMS:
        assert ids(term) == expected([term], rows), term
        assert ids(f"-{term}") == expected([f"-{term}"], rows), term


def test_terms_together_find_the_rows_of_a_naive_filter(
    rows: list[Execution], monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = st.sampled_from(["", "-"])
    terms = st.tuples(signs, st.sampled_from(sorted(naive.TERMS))).map("".join)

    @settings(
        max_examples=60,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    @given(st.lists(terms, min_size=2, max_size=4), st.sampled_from([3, 30, 100_000]))
    def check(query: list[str], looked_at: int) -> None:
        monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", looked_at)
        assert ids(" ".join(query)) == expected(query, rows)

    check()


def test_any_printed_part_of_an_id_finds_it(rows: list[Execution]) -> None:
    row = rows[40]
    text, digits = str(row.pk), row.pk.hex
    parts = [text, text.upper(), digits, text[:18], digits[-6:], f"…{digits[-3:]}", text[-12:]]
    parts += [f"{text[:13]}…{text[-4:]}", f"id:{text[:18]}", f"id:…{digits[-6:]}", f"id:{text}"]
    for part in parts:
        assert row.pk in ids(part), part

    assert ids(f"{text},{rows[50].pk}") == [rows[50].pk, row.pk]
    assert row.pk not in ids(f"-{text}")
    assert len(ids(f"-{text}")) == len(rows) - 1


def test_word_that_is_an_id_and_a_correlation_id_finds_both(rows: list[Execution]) -> None:
    Execution.objects.filter(pk=rows[9].pk).update(correlation_id=str(rows[5].pk))
    assert ids(str(rows[5].pk)) == [rows[9].pk, rows[5].pk]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("param.7:x", [0]),
        ("param.007:x", []),
        ("param.3000000000:1", [1]),
        ("param.-1:1", [2]),
        ("param.lines.1:b", [3]),
        ("param.lines.-1:b", []),
        ("param.lines.3000000000:b", []),
        ("param.lines.1.7:b", []),
    ],
)
def test_steps_that_look_like_numbers_are_names_or_places(
    database: str, text: str, found: list[int]
) -> None:
    several = [{"7": "x"}, {"3000000000": 1}, {"-1": 1}, {"lines": ["a", "b"]}]
    made = [make_execution(parameters=parameters) for parameters in several]
    assert ids(text) == [made[number].pk for number in found]
