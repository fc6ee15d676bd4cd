"""What is known of a run, as plain data. Nothing of Muster's own is in here.

All times are seconds since 1970 as `time.time()` gives them, also where the database's clock was
stepped: who reads the rows takes the step out again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

TERMINAL = frozenset({"completed", "failed", "timeout", "cancelled", "abandoned"})
BAD = frozenset({"failed", "timeout", "abandoned"})
"""Ends that nobody asked for."""


@dataclass(frozen=True)
class Accepted:
    """A line of the client's ledger: an id that Muster answered with."""

    execution: str
    at: float
    """Before it was asked for."""
    deadline_at: float
    """When it was due for good, should the clock that counts have been set back."""
    action: str
    queue: str = "default"


@dataclass(frozen=True)
class Lane:
    """A queue, and the names of the workers that serve it."""

    max_running: int | None = None
    workers: frozenset[str] = frozenset()
    retry_workers: frozenset[str] = frozenset()
    """Of its retry lane alone."""


@dataclass(frozen=True)
class Row:
    """An execution as the database has it at the end."""

    execution: str
    action: str
    idempotent: bool
    status: str
    reason: str
    attempt: int
    deadline_at: float
    ended_at: float | None
    digest: str = ""
    """Of the whole row, to see whether any of it changed."""
    created_at: float = 0.0
    pinned: str | None = None
    """The name of the worker that it must run on."""
    own_ttl_seconds: float | None = None
    """The wait for its worker that its request asked for."""
    timeout_seconds: float = 5.0
    seconds: float = 0.0
    """How long the action was asked to take."""
    max_attempts: int = 1
    retry_on: frozenset[str] | None = None
    result: Any = None
    queue: str = "default"
    lost_before: int = 0
    """Starts that were lost before it was accepted: a message said so."""


@dataclass(frozen=True)
class Event:
    """A row of an execution's history."""

    execution: str
    event: str
    from_status: str
    to_status: str
    attempt: int
    actor: str
    reason: str
    at: float
    told_at: float | None = None
    """The date that it was given, where that may differ from when it was written."""

    @property
    def date(self) -> float:
        return self.at if self.told_at is None else self.told_at


@dataclass(frozen=True)
class Line:
    """What an action wrote about itself: `start`, `end`, `stop` when it was interrupted, or `defer`
    instead of all of them."""

    event: str
    execution: str
    attempt: int
    pid: int
    at: float
    result: Any = None
    """Of an end: what the action returned."""


@dataclass(frozen=True)
class Sighting:
    """A process of an attempt that was alive when somebody looked."""

    execution: str
    attempt: int
    pid: int
    at: float


@dataclass(frozen=True)
class Fault:
    """Something that was broken, until it was whole again."""

    kind: str
    at: float
    until: float
    detail: str = ""
    workers: frozenset[str] = frozenset()
    """Names of the workers that it hit."""
    executions: frozenset[str] = frozenset()
    """Whose rows were held, so that nobody could end them."""


@dataclass(frozen=True)
class Life:
    """A process of a worker, from when it took work to its end, if it has ended."""

    worker: str
    began_at: float
    ended_at: float | None = None
    exit_status: int | None = None


@dataclass(frozen=True)
class Terms:
    """The settings of the installation that the rules need, and its size."""

    heartbeat_seconds: float = 1.0
    staleness_seconds: float = 4.0
    queue_ttl_seconds: float = 8.0
    start_grace_seconds: float = 2.0
    run_grace_seconds: float = 3.0
    shutdown_seconds: float = 10.0
    """How long a worker that stops waits for what it runs."""
    slots: int = 2
    """Of each worker."""


@dataclass(frozen=True)
class TaskRow:
    """A task as the database has it at the end."""

    task: str
    template: str
    state: str
    ended_at: float | None
    created_at: float = 0.0


@dataclass(frozen=True)
class StepRow:
    """A step as the database has it at the end."""

    step: str
    task: str
    name: str
    state: str
    attempts: int
    execution: str | None
    """The latest of its executions."""
    parents: frozenset[str] = frozenset()
    """Ids of the steps that it waits for."""
    result: Any = None


@dataclass(frozen=True)
class Record:
    """A row of a task's history, or, with a step, of that step's."""

    task: str
    step: str | None
    event: str
    from_state: str
    to_state: str
    at: float


OfExecution = TypeVar("OfExecution", Event, Line)


@dataclass(frozen=True)
class FailedTask:
    """A task of an executor that raised an error which nobody expected, by the executor's log."""

    at: float
    service: str
    task: str
    error: str


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run."""

    accepted: Sequence[Accepted] = ()
    rows: Sequence[Row] = ()
    events: Sequence[Event] = ()
    """In the order in which the database numbered them."""
    lines: Sequence[Line] = ()
    sightings: Sequence[Sighting] = ()
    queues: Mapping[str, int] = field(default_factory=dict)
    """Messages in each queue at the end, ready or not acknowledged."""
    faults: Sequence[Fault] = ()
    database_outages: Sequence[tuple[float, float]] = ()
    """When the database could not be written: the promise's clock stands still."""
    terminal_digests: Mapping[str, str] = field(default_factory=dict)
    """The digest of a row when it was first seen to be over."""
    last_open: Mapping[str, float] = field(default_factory=dict)
    """When an execution was last seen to be open: whoever waits for a lock dates its end before."""
    lives: Sequence[Life] = ()
    terms: Terms = Terms()
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    """By the names of the queues, that of the default one too."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most at once of some actions, by policies that were there before all of it."""
    policy_rows: Mapping[str, int] = field(default_factory=dict)
    """What policies still counted at the end: slots, and waits."""
    cancels: int = 0
    """How many cancels of executions were asked for."""
    wrong_answers: Sequence[str] = ()
    """Answers of the API that nothing excuses: 5xx other than 503."""
    neighbours: Mapping[str, str] = field(default_factory=dict)
    """Executions of another installation on the same virtual host, and how they ended."""
    clock_steps: Sequence[float] = ()
    """When the database's clock was stepped."""
    accepted_tasks: Sequence[str] = ()
    tasks: Sequence[TaskRow] = ()
    steps: Sequence[StepRow] = ()
    records: Sequence[Record] = ()
    """In the order in which the database numbered them."""
    unanswered: Mapping[str, int] = field(default_factory=dict)
    """How many rows of automation contradict what it promises, by what they are."""
    tries: Sequence[tuple[str, str]] = ()
    """(step, execution) for each execution that was requested for a step."""
    failed_tasks: Sequence[FailedTask] = ()

    @cached_property
    def row_of(self) -> Mapping[str, Row]:
        return {row.execution: row for row in self.rows}

    @cached_property
    def history_of(self) -> Mapping[str, list[Event]]:
        return grouped(self.events)

    @cached_property
    def starts_of(self) -> Mapping[str, list[Line]]:
        return grouped([line for line in self.lines if line.event == "start"])

    @cached_property
    def attempts_with_a_line(self) -> Mapping[str, set[int]]:
        """The attempts whose action got to say anything."""
        said = grouped([line for line in self.lines if line.event in ("start", "defer")])
        return {name: {line.attempt for line in lines} for name, lines in said.items()}

    @cached_property
    def ends_of(self) -> Mapping[str, list[Line]]:
        return grouped([line for line in self.lines if line.event == "end"])

    @cached_property
    def accepted_at(self) -> Mapping[str, float]:
        return {accepted.execution: accepted.at for accepted in self.accepted}

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What was worked out of all of it, kept by those who did."""
        return {}

    @cached_property
    def attempts_of(self) -> Mapping[str, list[tuple[float, float]]]:
        """From claim to end, by the name of the worker."""
        attempts: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for history in self.history_of.values():
            for claim, after in pairwise(history):
                if claim.event == "claim":
                    attempts[claim.actor].append((claim.at, after.at))
        return attempts


@dataclass(frozen=True)
class Violation:
    """A rule that did not hold, for one execution or for the whole."""

    rule: str
    detail: str
    execution: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.execution or 'the run'}: {self.detail}"


def grouped(things: Sequence[OfExecution]) -> dict[str, list[OfExecution]]:
    """By the execution that they are about, in the same order."""
    groups: dict[str, list[OfExecution]] = defaultdict(list)
    for thing in things:
        groups[thing.execution].append(thing)
    return groups
