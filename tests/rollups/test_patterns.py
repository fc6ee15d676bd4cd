"""Messages of one kind have one pattern, and a pattern has no value in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rollups import patterns
from orchestrator.rollups.models import PATTERN_MAX


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("no route to printer 7", "no route to printer #"),
        ("could not open /dev/printer7 (exit 3)", "could not open # (exit #)"),
        ("couldn't find 'a b' on w2, didn't wait", "couldn't find # on #, didn't wait"),
        ('order "17-b" of ada@example.org is late by 30s', "order # of # is late by #"),
        ("GET https://example.org/a?b=c: refused", "GET # refused"),
        ("at 2030-01-31T12:00:00.123Z and 12:00:01", "at # and #"),
        ("job 01a20033-10da-7000-8000-cca82f54fa3f", "job #"),
        ("digest 0xdeadbeef, 9f8e7d6c", "digest #"),
        ("rows 1, 2, 3 and 4", "rows # and #"),
        ("password=*** user=ada", "password=# user=#"),
        ("key AbCdEfGhIjKlMnOpQrStUvWxYzAbCd was refused", "key # was refused"),
        ("  two\n lines\tand more ", "two lines and more"),
        ("", ""),
    ],
)
def test_values_are_replaced_and_words_stay(message: str, pattern: str) -> None:
    assert patterns.of(message) == pattern


def test_two_kinds_have_two_patterns() -> None:
    assert patterns.of("no route to printer 7") != patterns.of("no paper in printer 7")


@given(st.text(max_size=300))
def test_no_digit_is_kept_and_a_pattern_is_short_and_stable(message: str) -> None:
    pattern = patterns.of(message)
    assert not any(character in "0123456789\0\n" for character in pattern)
    assert len(pattern) <= PATTERN_MAX


@pytest.mark.parametrize("part", ["'", "a", "/", "@", "=", "a.", "[", "-"])
def test_a_hostile_message_takes_no_time(part: str) -> None:
    began = time.process_time()
    patterns.of(part * 100_000)
    assert time.process_time() - began < 0.2
