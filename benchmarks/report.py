"""The results, for readers: JSON, a Markdown table, and the closing table of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.samples import Goal, Result, Sample, Summary

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MACHINE = "### The machine"


@dataclass(frozen=True)
class Verdict:
    """One goal, and what was measured for it."""

    goal: Goal
    summary: Summary | None
    error: str = ""

    @property
    def measured(self) -> str:
        if self.summary is None:
            return "-"
        low, high = number(self.summary.lowest), number(self.summary.highest)
        return f"{number(self.summary.median)} [{low} .. {high}]"

    @property
    def word(self) -> str:
        """The word that says if the goal was reached."""
        if self.summary is None:
            return "not measured"
        if not self.goal.is_reached(self.summary.median):
            return "missed"
        beyond = self.goal.stretch is not None and self.summary.median >= self.goal.stretch
        return "stretched" if beyond else "reached"


def verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    for result in results:
        for goal in result.goals:
            figures = goal.figures(result.samples)
            yield Verdict(goal, Summary.of(figures) if figures else None, result.error)


def number(value: float) -> str:
    """Three digits that matter, and no more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def closing_table(results: Sequence[Result]) -> Table:
    table = Table(title="Goals", title_justify="left")
    table.add_column("what", overflow="fold")
    table.add_column("goal")
    table.add_column("median [min .. max]", justify="right")
    table.add_column("")
    styles = {"missed": "red", "not measured": "yellow"}
    for verdict in verdicts(results):
        row = (verdict.goal.what, verdict.goal.text, verdict.measured, verdict.word)
        table.add_row(*row, style=styles.get(verdict.word, "green"))
    return table


def markdown(results: Sequence[Result], machine: Mapping[str, str]) -> str:
    """Goals, then every subject of every benchmark, then the machine."""
    lines = ["| what | goal | median [min .. max] | |", "|---|---|--:|---|"]
    lines += [
        f"| {v.goal.what} | {_cell(v.goal.text)} | {v.measured} | {_emphasis(v.word)} |"
        for v in verdicts(results)
    ]
    for result in results:
        lines += ["", f"### {result.title}", ""]
        if result.notes:
            lines += [result.notes, ""]
        if result.error:
            lines += [f"Not measured to the end: {_first_line(result.error)}", ""]
        if result.samples:
            lines += ["| | median | min | max | unit | rounds |", "|---|--:|--:|--:|---|--:|"]
        lines += [
            f"| {subject} | {number(s.median)} | {number(s.lowest)} | {number(s.highest)} "
            f"| {unit} | {s.count} |"
            for (subject, unit), s in result.summaries().items()
        ]
        version = machine.get("muster", "of an unknown version")
        lines += ["", f"Load average when it ended: {result.load_average:.1f}. Muster {version}."]
    lines += ["", MACHINE, "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(text)} |" for name, text in machine.items()]
    return "\n".join(lines) + "\n"


def into_document(document: str, table: str) -> str:
    """The document with what stands between its marks replaced; what is there of benchmarks that
    were not run again stays. Raises ValueError without the marks."""
    before, begin, rest = document.partition(BEGIN)
    measured, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected {BEGIN} and {END} in the document")
    return f"{before}{BEGIN}\n\n{_merged(measured, table)}\n{END}{after}"


def _merged(earlier: str, new: str) -> str:
    """Goals and sections of both, in the order of the earlier ones. The machine, at the end, stays
    that of the earlier run while anything of that stays."""
    (goals, *sections), (new_goals, *new_sections) = _sections(earlier), _sections(new)
    rows = _by_first_cell(goals) | _by_first_cell(new_goals)
    old, again = _by_heading(sections), _by_heading(new_sections)
    both = old | again
    if old.keys() - again.keys():
        both[MACHINE] = old.get(MACHINE) or both[MACHINE]
    both[MACHINE] = both.pop(MACHINE)
    return "\n\n".join(part.strip() for part in ("\n".join(rows.values()), *both.values())) + "\n"


def _sections(table: str) -> list[str]:
    """The goals, and each section with its heading."""
    return re.split(r"^(?=### )", table, flags=re.MULTILINE)


def _by_heading(sections: Sequence[str]) -> dict[str, str]:
    return {section.partition("\n")[0]: section for section in sections}


def _by_first_cell(goals: str) -> dict[str, str]:
    return {line.split("|")[1]: line for line in goals.splitlines() if line.startswith("|")}


def to_json(results: Sequence[Result], machine: Mapping[str, str]) -> str:
    return json.dumps(
        {"machine": dict(machine), "results": [asdict(result) for result in results]}, indent=1
    )


def from_json(path: Path) -> tuple[list[Result], dict[str, str]]:
    """The results and the machine that `to_json` wrote."""
    found: dict[str, Any] = json.loads(path.read_text())
    results = []
    for values in found["results"]:
        values["goals"] = [Goal(**goal) for goal in values["goals"]]
        values["samples"] = [Sample(**sample) for sample in values["samples"]]
        results.append(Result(**values))
    return results, found["machine"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<=", "≤").replace(">=", "≥")


def _emphasis(word: str) -> str:
    return f"**{word}**" if word in ("missed", "not measured") else word


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
