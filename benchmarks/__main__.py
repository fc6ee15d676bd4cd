"""`python -m benchmarks`: measure, say how far it is, and close with a table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import chart, machine, report, suite
from benchmarks.remote import BenchmarkError
from benchmarks.samples import Benchmark, Plan, Result
from benchmarks.stage import Stage
from tests import servers

QUICK = Plan(size=500, rounds=3)
FEWEST_ROUNDS = 3
"""Fewer have no median that says anything."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 if all was measured, 1 if not, whether or not goals were reached."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 100)
    if options.list:
        for benchmark in suite.ALL:
            console.print(f"{benchmark.name:16} {benchmark.title}", highlight=False)
        return 0
    if options.from_json:
        results, found = report.from_json(options.from_json)
    else:
        results, found = _measure_all(options, console)
    _write(options, results, found)
    console.print(report.closing_table(results))
    return int(any(result.error for result in results))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in suite.ALL]
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if left out; see --list")
    parser.add_argument("--list", action="store_true", help="the benchmarks, and measure nothing")
    parser.add_argument("--rounds", type=int, help=f"each at least {FEWEST_ROUNDS} (default 3)")
    parser.add_argument("--size", type=int, help="executions of a throughput run (default 5000)")
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, read this")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="tables into this document")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write the chart, as SVG")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; expected: {', '.join(names)}")
    if options.rounds is not None and options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {options.rounds}: expected at least {FEWEST_ROUNDS}")
    if options.size is not None and options.size < 100:
        parser.error(f"--size {options.size}: expected at least 100")
    return options


def _measure_all(
    options: argparse.Namespace, console: Console
) -> tuple[list[Result], dict[str, str]]:
    default = QUICK if options.quick else Plan()
    plan = Plan(size=options.size or default.size, rounds=options.rounds or default.rounds)
    found = machine.describe() | {"executions of a run": f"{plan.size:,}"}
    for name, text in found.items():
        console.print(f"{name:24} {text}", highlight=False)
    chosen = [b for b in suite.ALL if not options.names or b.name in options.names]
    results = []
    with Stage() as stage:
        for index, benchmark in enumerate(chosen, 1):
            console.rule(f"{index}/{len(chosen)} {benchmark.title}", align="left")
            results.append(_measure(benchmark, stage, plan, console))
            if options.json:  # what is measured stays, whatever becomes of the rest
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(report.to_json(results, found))
    return results, found


def _measure(benchmark: Benchmark, stage: Stage, plan: Plan, console: Console) -> Result:
    result = Result(
        benchmark.name, benchmark.title, goals=list(benchmark.goals), notes=benchmark.notes
    )
    started = time.monotonic()
    try:
        with console.status("starting ..."):
            for sample in benchmark.measure(stage, plan):
                result.samples.append(sample)
                value = f"{report.number(sample.value)} {sample.unit}"
                console.print(
                    f"  round {sample.round}/{plan.rounds}  {sample.subject:28} {value}",
                    highlight=False,
                )
    except (BenchmarkError, servers.ServerError) as error:
        result.error = str(error)
        console.print(f"  not measured: {error}", style="red", markup=False)
    result.seconds = time.monotonic() - started
    result.load_average = os.getloadavg()[0]
    return result


def _write(options: argparse.Namespace, results: Sequence[Result], found: dict[str, str]) -> None:
    table = report.markdown(results, found)
    if options.markdown:
        options.markdown.write_text(table)
    if options.docs:
        options.docs.write_text(report.into_document(options.docs.read_text(), table))
    if options.chart:
        options.chart.write_text(chart.svg(list(report.verdicts(results))))


if __name__ == "__main__":
    sys.exit(main())
