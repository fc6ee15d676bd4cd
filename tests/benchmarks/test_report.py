"""What readers get to see of a run: tables, JSON, the chart."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks import chart, report
from benchmarks.samples import Goal, Result, Sample

MACHINE = {"cores": "2", "python": "3.11"}


def result(*values: float, error: str = "", **bounds: Any) -> Result:
    """One benchmark with one goal of its own, and these values in consecutive rounds."""
    goal = Goal(what="drain", subject="drain", unit="/s", **(bounds or {"at_least": 2_000.0}))
    samples = [Sample("drain", number, value, "/s") for number, value in enumerate(values, 1)]
    return Result("dead-letters", "Draining", goals=[goal], samples=samples, error=error)


def verdict(*values: float, **bounds: Any) -> report.Verdict:
    return next(report.verdicts([result(*values, **bounds)]))


@pytest.mark.parametrize(
    ("values", "bounds", "word"),
    [
        ([2_100.0, 1_000.0, 2_000.0], {"at_least": 2_000.0}, "reached"),
        ([1_999.0], {"at_least": 2_000.0}, "missed"),
        ([5.0], {"at_least": 2.5, "stretch": 4.0}, "stretched"),
        ([3.0], {"at_least": 2.5, "stretch": 4.0}, "reached"),
        ([11.0], {"at_most": 10.0}, "missed"),
        ([], {"at_least": 1.0}, "not measured"),
    ],
)
def test_median_decides_on_a_goal(values: list[float], bounds: dict[str, float], word: str) -> None:
    assert verdict(*values, **bounds).word == word


def test_measured_is_median_lowest_and_highest() -> None:
    assert verdict(2_100, 1_000, 30_000).measured == "2,100 [1,000 .. 30,000]"


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.0, "0.00")]
)
def test_numbers_have_three_digits_that_matter(value: float, text: str) -> None:
    assert report.number(value) == text


def test_markdown_tells_goals_samples_and_machine() -> None:
    table = report.markdown([result(2_100, 2_200, 2_300)], MACHINE)
    assert "| drain | ≥ 2,000 /s | 2,200 [2,100 .. 2,300] | reached |" in table
    assert "| drain | 2,200 | 2,100 | 2,300 | /s | 3 |" in table
    assert "| cores | 2 |" in table


def test_markdown_says_what_was_missed_and_what_was_not_measured() -> None:
    table = report.markdown([result(1.0), result(error="no such module\nmore")], MACHINE)
    assert "**missed**" in table
    assert "**not measured**" in table
    assert "Not measured to the end: no such module\n" in table


def test_table_replaces_what_was_measured_again_and_keeps_the_rest() -> None:
    def written(*figures: tuple[str, str], machine: str) -> str:
        goals = [f"| {name} | {figure} |" for name, figure in figures]
        sections = [f"\n### {name}\n\n{figure}" for name, figure in figures]
        rows = ["| what | goal |", "|---|---|", *goals, *sections]
        return "\n".join([*rows, f"\n{report.MACHINE}\n\n{machine}\n"])

    before = written(("bulk", "1"), ("idle", "2"), machine="old")
    again = written(("idle", "3"), ("pruning", "4"), machine="new")
    document = f"before\n{report.BEGIN}\n\n{before}\n{report.END}\nafter\n"

    both = written(("bulk", "1"), ("idle", "3"), ("pruning", "4"), machine="old")
    assert report.into_document(document, again) == (
        f"before\n{report.BEGIN}\n\n{both}\n{report.END}\nafter\n"
    )
    whole = written(("idle", "5"), ("pruning", "6"), ("bulk", "7"), machine="new")
    assert "\nnew\n" in report.into_document(document, whole), "the machine of all that is left"


def test_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="measured: begin"):
        report.into_document("no marks", "new")


def test_json_is_read_back_as_it_was(tmp_path: Path) -> None:
    results = [result(1.0, 2.0), result(error="why")]
    path = tmp_path / "results.json"
    path.write_text(report.to_json(results, MACHINE))
    assert report.from_json(path) == (results, MACHINE)


def test_closing_table_fits_a_terminal() -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(report.closing_table([result(2_100.0)]))
    assert "2,100 [2,100 .. 2,100]" in output.getvalue()
    assert max(map(len, output.getvalue().splitlines())) <= 100


def test_chart_has_a_bar_for_each_goal_that_was_measured() -> None:
    found = [verdict(4_000), verdict(1_000), verdict()]
    tree = ElementTree.fromstring(chart.svg(found))  # noqa: S314 - our own
    bars = [rect.get("fill") for rect in tree.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert bars == [chart.REACHED, chart.MISSED]


@pytest.mark.parametrize(
    ("bounds", "value", "times"),
    [({"at_least": 2_000.0}, 4_000, 2), ({"at_most": 10.0}, 5, 2), ({"at_most": 10.0}, 20, 0.5)],
)
def test_advantage_is_how_far_beyond_the_goal(
    bounds: dict[str, float], value: float, times: float
) -> None:
    assert chart.advantage(verdict(value, **bounds), value) == times


def test_goal_stands_in_the_middle_of_the_axis_and_nothing_leaves_it() -> None:
    assert chart.position(1) == 0.5
    assert chart.position(chart.SPAN) == 1
    assert chart.position(10_000) == 1
    assert chart.position(0) == 0
