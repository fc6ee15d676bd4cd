"""What is drawn of numbers, as text."""

from __future__ import annotations

import re

from orchestrator.console import svg


def drawn(values: list[int]) -> str:
    _, bars = re.findall(r' d="([^"]*)"', svg.spark(values, "three"))
    return str(bars)


def test_a_sparkline_has_a_bar_for_each_value() -> None:
    assert drawn([1, 0, 4]) == "M0 20V15h4V20h1V20h4V20h1V0h4V20h1V20z"
    assert 'viewBox="0 0 15 20"' in svg.spark([1, 0, 4], "three")


def test_the_smallest_value_of_a_sparkline_is_seen() -> None:
    assert drawn([1, 1_000]) == "M0 20V19h4V20h1V0h4V20h1V20z"


def test_a_sparkline_of_many_values_has_bars_without_gaps() -> None:
    assert drawn([2] * 30 + [1] * 30) == "M0 20V0h30V10h30V20z"


def test_a_sparkline_has_no_more_bars_than_pixels() -> None:
    assert drawn([1] * 168) == "M0 20V0h84V20z"


def test_a_sparkline_of_nothing_is_its_line() -> None:
    assert drawn([]) == "M0 20V20z"
    assert drawn([0]) == "M0 20V20h4V20h1V20z"
