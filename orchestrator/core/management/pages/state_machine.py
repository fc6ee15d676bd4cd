"""The page of the states of everything that has a life."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.module_loading import import_string

from orchestrator.core import frame
from orchestrator.core.frame import Life
from orchestrator.core.management.markdown import mermaid_of, page_of, table_of
from orchestrator.core.state_machine import Machine


def page() -> str:
    lives = frame.collect(lambda app: app.lives)
    return page_of(
        f"The lives of {_listed([life.title.lower() for life in lives])}",
        "Status and state change in one place, `orchestrator.core.state_machine`, by "
        "compare-and-swap: a transition happens only if the row still has the status and the "
        "attempt that the caller read. Every transition writes one row of history. A terminal row "
        "is final: the database refuses every change of it, and of its history.",
        *(part for life in lives for part in _life(life)),
    )


def _life(life: Life) -> Iterator[str]:
    yield f"## {life.title}"
    yield life.intro
    yield from _machine_parts(import_string(life.machine), life.begins)
    yield from life.notes


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _machine_parts(machine: Machine, begins: str) -> Iterator[str]:
    states = list(machine.states)
    rules = machine.transitions.values()
    ordered = [s for s in states if s not in machine.ended]
    ordered += [s for s in states if s in machine.ended]
    kind = machine.column.capitalize()
    yield table_of(
        (kind, "Who moves it on", "By these events"),
        [
            (
                f"`{state}`",
                machine.who_moves_it_on[state],
                ", ".join(f"`{rule.event}`" for rule in rules if state in rule.sources) or "none",
            )
            for state in ordered
        ],
    )
    yield mermaid_of(_state_diagram(machine, begins))
    yield table_of(
        ("Event", "From", "To", "By", f"New {machine.fence}"),
        [
            (
                f"`{rule.event}`",
                ", ".join(f"`{state}`" for state in states if state in rule.sources),
                f"`{rule.target}`",
                rule.who,
                "yes" if rule.new_attempt else "",
            )
            for rule in rules
        ],
    )


def _state_diagram(machine: Machine, begins: str) -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {machine.initial}: {begins}"
    arrows: dict[tuple[str, str], list[str]] = {}
    for rule in machine.transitions.values():
        for source in machine.states:
            if source in rule.sources:
                arrows.setdefault((source, rule.target), []).append(rule.event)
    for (origin, target), events in arrows.items():
        yield f"    {origin} --> {target}: {', '.join(events)}"
    for state in machine.states:
        if state in machine.terminal:
            yield f"    {state} --> [*]"
