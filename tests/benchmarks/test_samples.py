"""What follows from samples: medians, ratios within a round, goals."""

from __future__ import annotations

import pytest

from benchmarks.samples import Goal, Result, Sample, Summary, parts, percentile


def samples(**values: list[float]) -> list[Sample]:
    return [
        Sample(subject, number, value, "executions/s")
        for subject, found in values.items()
        for number, value in enumerate(found, 1)
    ]


def test_summary_is_median_lowest_and_highest() -> None:
    assert Summary.of([3, 1, 10]) == Summary(median=3, lowest=1, highest=10, count=3)


def test_nothing_has_no_summary() -> None:
    with pytest.raises(ValueError, match="nothing"):
        Summary.of([])


def test_ratio_is_taken_within_each_round() -> None:
    # the second round was disturbed on both sides, which its ratio does not show
    goal = Goal(what="ours over theirs", subject="ours", over="theirs", at_least=1.5)
    assert goal.figures(samples(ours=[200, 20, 400], theirs=[100, 10, 200])) == [2, 2, 2]


def test_round_without_its_counterpart_gives_no_ratio() -> None:
    goal = Goal(what="ours over theirs", subject="ours", over="theirs", at_least=1)
    assert goal.figures(samples(ours=[200, 300], theirs=[100])) == [2]
    assert goal.figures(samples(ours=[200])) == []


def test_goal_without_counterpart_takes_values_in_order_of_rounds() -> None:
    goal = Goal(what="p99", subject="p99", unit="ms", at_most=10)
    backwards = list(reversed(samples(p99=[7, 8, 9], p50=[1, 1, 1])))
    assert goal.figures(backwards) == [7, 8, 9]


@pytest.mark.parametrize(
    ("goal", "reached", "missed"),
    [
        (Goal(what="", subject="", at_least=1.0), 1.0, 0.99),
        (Goal(what="", subject="", at_most=1.2), 1.2, 1.21),
        (Goal(what="", subject="", at_least=0.85, at_most=1.15), 0.9, 1.2),
    ],
)
def test_goal_is_reached_on_the_right_side_of_its_bounds(
    goal: Goal, reached: float, missed: float
) -> None:
    assert goal.is_reached(reached)
    assert not goal.is_reached(missed)


def test_goal_says_what_it_asks_for() -> None:
    assert Goal(what="", subject="", at_least=1, stretch=1.3).text == ">= 1 x (stretch 1.3)"
    assert Goal(what="", subject="", at_most=10, unit="ms").text == "<= 10 ms"


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_percentile_of_a_few_is_one_of_them() -> None:
    assert percentile([3.0], 99) == 3.0
    assert percentile([1.0, 2.0, 3.0], 99) == 3.0


def test_slower_benchmark_takes_a_part_but_never_too_few() -> None:
    assert parts(5_000, one_of=5) == 1_000
    assert parts(100, one_of=5) == 50
    assert parts(30, one_of=5) == 30


def test_summaries_keep_the_order_of_measuring() -> None:
    result = Result("name", "title", goals=[], samples=samples(b=[2, 4], a=[1]))
    assert list(result.summaries()) == [("b", "executions/s"), ("a", "executions/s")]
    assert result.summaries()["b", "executions/s"].median == 3
