"""Patterns match in linear time, and what cannot is refused by name."""

from __future__ import annotations

import pytest

from orchestrator.core.schemas import patterns
from orchestrator.core.schemas.patterns import InvalidPattern


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("(?=a)b", "look-ahead (?="),
        ("(?!a)b", "look-ahead (?!"),
        ("(?<=a)b", "look-behind (?<="),
        ("(?<!a)b", "look-behind (?<!"),
        (r"(a)\1", r"a back reference \1"),
        (r"(?<n>a)\k<n>", r"a back reference \k"),
        ("(?>a)", "an atomic group (?>"),
        ("[", "missing ]: ["),
        ("[" + "a" * 30, "missing ]"),
        (r"\p{L}{1000}", "pattern too large - compile failed"),
        ("a" * 10_001, "10,001 characters, at most 10,000 are possible"),
    ],
)
def test_what_is_refused_is_named(pattern: str, found: str) -> None:
    with pytest.raises(InvalidPattern) as raised:
        patterns.compiled(pattern)
    assert str(raised.value) == found


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^abc$", "abc\n", False),
        (r"^\d+$", "12", True),
        (r"^\d+$", "\u0661\u0662", False),
        (r"^\p{L}+$", "äß", True),
        (r"^caf\u00e9$", "café", True),
        (r"^\u{1F600}$", "\U0001f600", True),
        (r"^\\u00e9$", r"\u00e9", True),
        ("^h.llo$", "hällo", True),
        ("(?<name>a)", "a", True),
        ("", "\ud800", True),
    ],
)
def test_pattern_matches_as_json_schema_says(pattern: str, text: str, expected: bool) -> None:
    assert patterns.matches(pattern, text) is expected


@pytest.mark.timeout(30)
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(.*)(.*)(.*)c$"])
def test_exploding_patterns_end_on_a_megabyte(pattern: str) -> None:
    assert not patterns.matches(pattern, "a" * 1_000_000 + "!")
