"""The text of a search becomes terms, or a mistake with its place; the database is not asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.search import grammar
from orchestrator.core.search.grammar import NotUnderstood


def read(text: str) -> list[tuple[str, list[str], bool]]:
    return [
        (term.key, [value.text for value in term.values], term.is_negated)
        for term in grammar.parse(text)
    ]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \t\n ", []),
        ("status:failed", [("status", ["failed"], False)]),
        ("  status:failed\tran:>5s ", [("status", ["failed"], False), ("ran", [">5s"], False)]),
        ("status:failed,timeout", [("status", ["failed", "timeout"], False)]),
        ("-status:failed", [("status", ["failed"], True)]),
        ("by:user:ada", [("by", ["user:ada"], False)]),
        ("param.order.id:7", [("param.order.id", ["7"], False)]),
        ('message:"no route, at all"', [("message", ["no route, at all"], False)]),
        (r'message:"a \"quoted\" \\ text",b', [("message", ['a "quoted" \\ text', "b"], False)]),
        ('"status:failed"', [("", ["status:failed"], False)]),
        ("core.echo -abc", [("", ["core.echo"], False), ("", ["abc"], True)]),
        ("12:30", [("", ["12:30"], False)]),
        ("…f3f", [("", ["…f3f"], False)]),
        ('message:""', [("message", [""], False)]),
    ],
)
def test_terms_of_a_text(text: str, terms: list[tuple[str, list[str], bool]]) -> None:
    assert read(text) == terms


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("status:", "       "),
        ("status:,a", "      ^"),
        ("status:a,", "        ^"),
        ("status:a,,b", "        ^"),
        ('status:"fa', "       ^^^"),
        ('status:"a"b', "          ^"),
        ('status:a"b"', "        ^"),
        ("-", "^"),
        ("- status:a", "^"),
        ("--status:a", "^"),
        ("a\0b", " ^"),
        ("a \udc80", "  ^"),
        (",", "^"),
    ],
)
def test_a_mistake_is_marked_at_its_place(text: str, marked: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        grammar.parse(text)
    (mistake,) = refused.value.mistakes
    *_, line = str(refused.value).split("\n")
    assert line == f"  {' ' * mistake.start}{'^' * (mistake.end - mistake.start)}"
    if marked.strip():
        assert line == f"  {marked}"


def test_text_that_is_too_long_is_refused() -> None:
    assert len(grammar.parse("a " * 500)) == 500
    with pytest.raises(NotUnderstood, match="at most 1,000 characters"):
        grammar.parse("a " * 501)


@given(st.text(alphabet=st.sampled_from(['"', "\\", ",", ":", "-", " ", "a", "\n", "é", ">"])))
def test_every_text_is_terms_in_their_order_or_a_mistake_inside_of_it(text: str) -> None:
    terms, mistakes = [], []
    try:
        terms = grammar.parse(text)
    except NotUnderstood as refused:
        mistakes = refused.mistakes
    assert all(0 <= each.start < each.end <= max(1, len(text)) for each in mistakes)
    values = [value for term in terms for value in term.values]
    places = [place for value in values for place in (value.start, value.end)]
    assert places == sorted(places)
    assert all(text[term.key_start :].startswith(term.key) for term in terms)
