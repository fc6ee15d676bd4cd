"""The keys of searches: what each means, and what the database reads for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial, reduce
from operator import and_

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Q
from django.db.models import Value as SqlValue
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Left
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from orchestrator.core import authority, frame, queue_terms
from orchestrator.core.cursors import ID_MAX
from orchestrator.core.models import Action, Worker
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.reasons import Reason
from orchestrator.core.search import ids, payloads, values
from orchestrator.core.search.conditions import (
    Asked,
    Condition,
    Mistaken,
    Reads,
    any_of,
    each,
)
from orchestrator.core.search.grammar import Mistake, NotUnderstood, Term, Value, parse
from orchestrator.core.search.values import Range, Unreadable
from orchestrator.core.states import OPEN, TERMINAL, ExecutionStatus
from orchestrator.core.words import did_you_mean

Reader = Callable[[Term, Asked], Condition]

MICROSECOND = timedelta(microseconds=1)
NAMES_LIMIT = 2_000
"""The most names that are compared with one that is unknown."""

GROUPS = {"open": OPEN, "ended": TERMINAL}
STATUSES: tuple[str, ...] = (*(status.value for status in ExecutionStatus), *GROUPS)
REASONS: tuple[str, ...] = tuple(reason.value for reason in Reason)
CONDITIONS = ("overdue",)


@dataclass(frozen=True)
class Key:
    """One key of the language."""

    name: str
    about: str
    example: str
    read: Reader
    has_one: bool = False
    """Takes a single value."""
    has_path: bool = False
    """Is followed by the path of a value."""


@dataclass(frozen=True)
class Wanted:
    """A search that was read: all of its conditions must hold."""

    conditions: tuple[Condition, ...] = ()

    @property
    def q(self) -> Q:
        return reduce(and_, (each.q for each in self.conditions), Q())

    @property
    def is_few(self) -> bool:
        return any(each.reads is Reads.FEW for each in self.conditions)

    @property
    def scans(self) -> bool:
        """True if a page has to look at rows that do not match, of which there may be many."""
        return not self.is_few and any(each.reads is Reads.SCANS for each in self.conditions)

    @property
    def is_served_by_index(self) -> bool:
        """True if `q` says all of it, and an index leads to the rows."""
        return not self.scans and all(each.check is None for each in self.conditions)

    @property
    def window(self) -> Q | None:
        """The time of creation that was asked for; None for any."""
        windows = [each.window for each in self.conditions if each.window is not None]
        return reduce(and_, windows) if windows else None


def read(text: str, asked: Asked) -> Wanted:
    """Read a search. Raises NotUnderstood, with all its mistakes in keys and values."""
    mistakes: list[Mistake] = []
    conditions: list[Condition] = []
    for term in parse(text):
        try:
            conditions.append(_condition(term, asked))
        except Mistaken as mistaken:
            mistakes += mistaken.mistakes
    if mistakes:
        raise NotUnderstood(text, mistakes)
    return Wanted(tuple(conditions))


def _condition(term: Term, asked: Asked) -> Condition:
    key = _key(term)
    if key.has_one and len(term.values) > 1:
        second = term.values[1]
        message = f"{term.key} takes one value; for a range say {key.example}"
        raise Mistaken([Mistake(second.start, second.end, message)])
    found = key.read(term, asked)
    return found.negated() if term.is_negated else found


def _key(term: Term) -> Key:
    name, dot, _ = term.key.partition(".")
    key = keys().get(name)
    if key is not None and key.has_path == bool(dot):
        return key
    if key is None:
        known = [known for known in keys() if known]
        hint = did_you_mean(name, known) or f": expected one of {', '.join(known)}"
        message = f"no key is called {name!r}{hint} (a text with a colon needs quotes)"
    elif dot:
        message = f"{name} has no parts, did you mean {name!r}?"
    else:
        message = f"expected the name of a parameter, such as {key.example}"
    raise Mistaken([Mistake(term.key_start, term.key_end, message)])


# --- codes, of which all are known ---------------------------------------------------------------


def _status(term: Term, asked: Asked) -> Condition:
    names = each(term.values, partial(_one_of, "status", STATUSES))
    statuses = {status for name in names for status in GROUPS.get(name, {name})}
    if OPEN.issuperset(statuses):
        # the partial index of what is open is on `ended_at`, not on the status
        return Condition(Q(ended_at__isnull=True, status__in=sorted(statuses)), Reads.FEW)
    return Condition(Q(status__in=sorted(statuses)))


def _reason(term: Term, asked: Asked) -> Condition:
    return Condition(Q(reason__in=each(term.values, partial(_one_of, "reason", REASONS))))


def _one_of(noun: str, known: Sequence[str], value: Value) -> str:
    if value.text not in known:
        hint = did_you_mean(value.text, known) or f": expected one of {', '.join(known)}"
        raise Unreadable(f"no {noun} is called {value.text!r}{hint}")
    return value.text


def _is(term: Term, asked: Asked) -> Condition:
    """Conditions of a word. What is past its deadline is open: few rows."""
    each(term.values, partial(_one_of, "condition", CONDITIONS))
    return Condition(Q(ended_at__isnull=True, deadline_at__lte=asked.now), Reads.FEW)


# --- names, with a `*` at their end for all that begin so ----------------------------------------


def _begins(value: Value) -> str | None:
    """The text that names must begin with; None if this is a whole name."""
    if value.is_quoted or not value.text.endswith("*"):
        return None
    return value.text[:-1]


def _action(term: Term, asked: Asked) -> Condition:
    refs = [ref for refs in each(term.values, partial(_refs, asked)) for ref in refs]
    return Condition(Q(action_ref__in=refs), Reads.INDEXED)


def _refs(asked: Asked, value: Value) -> list[str]:
    rows = Action.objects.visible_to(asked.principal, "executions.read")
    begins = _begins(value)
    rows = rows.filter(ref=value.text) if begins is None else rows.filter(ref__startswith=begins)
    refs = list(rows.values_list("ref", flat=True))
    if not refs:
        every = Action.objects.visible_to(asked.principal, "executions.read")
        hint = did_you_mean(value.text, every.values_list("ref", flat=True)[:NAMES_LIMIT])
        raise Unreadable(f"no action is called {value.text!r}{hint}")
    return refs


def _worker(term: Term, asked: Asked) -> Condition:
    workers = [id for ids in each(term.values, partial(_workers, asked)) for id in ids]
    return Condition(Q(worker_id__in=workers))


def _workers(asked: Asked, value: Value) -> list[int]:
    """The ids of the workers with this name or id; there may be one of each. Only who sees all
    workers is told that there is none: to others, there may be one that they do not see."""
    begins = _begins(value)
    if begins is not None:
        called = Q(name__startswith=begins)
    else:
        called = Q(name=value.text)
        if value.text.isascii() and value.text.isdigit() and int(value.text) <= ID_MAX:
            called |= Q(pk=int(value.text))
    found = list(Worker.objects.filter(called).values_list("pk", flat=True))
    if not found and authority.reach(asked.principal, "workers.read").is_everywhere:
        known = Worker.objects.known()
        hint = did_you_mean(value.text, known.values_list("name", flat=True)[:NAMES_LIMIT])
        raise Unreadable(f"no worker has the name or id {value.text!r}{hint}")
    return found


def _queue(term: Term, asked: Asked) -> Condition:
    return Condition(any_of(each(term.values, _in_queue)))


def _in_queue(value: Value) -> Q:
    begins = _begins(value)
    if begins is not None:
        return _starts("queue", begins)
    if value.text == queue_terms.DEFAULT:
        return Q(queue__isnull=True)
    if value.text not in queue_terms.queues().terms([value.text]):
        hint = did_you_mean(value.text, (queue_terms.DEFAULT, *queue_terms.queues().terms()))
        hint = hint or f"; {value.text}* finds the work of one that was removed, too"
        raise Unreadable(f"no queue is called {value.text!r}{hint}")
    return Q(queue=value.text)


def _by(term: Term, asked: Asked) -> Condition:
    return Condition(any_of([_requested_by(value) for value in term.values]))


def _requested_by(value: Value) -> Q:
    begins = _begins(value)
    return Q(requested_by=value.text) if begins is None else _starts("requested_by", begins)


def _starts(column: str, begins: str) -> Q:
    has_one = Q(**{f"{column}__isnull": False})
    # databases differ in whether LIKE tells capitals apart
    return has_one & Q(Exact(Left(column, len(begins)), begins)) if begins else has_one


def _correlation(term: Term, asked: Asked) -> Condition:
    return Condition(Q(correlation_id__in=[value.text for value in term.values]), Reads.FEW)


# --- ranges --------------------------------------------------------------------------------------


def _attempt(term: Term, asked: Asked) -> Condition:
    ranges = each(term.values, lambda value: values.whole_numbers(value.text))
    return Condition(any_of([Q(**each.lookups("attempt")) for each in ranges]))


def _created(term: Term, asked: Asked) -> Condition:
    (range,) = each(term.values, lambda value: values.times(value.text, asked.now))
    # ends that do not belong to it: times are stored in microseconds
    low = range.low if range.low is None or range.has_low else range.low + MICROSECOND
    high = range.high if range.high is None or range.has_high else range.high - MICROSECOND
    created = created_between(low, high)
    return Condition(created, Reads.INDEXED, window=created)


def _ran(term: Term, asked: Asked) -> Condition:
    """The condition for the time that its latest run took, or takes until now, as lists show it."""
    (range,) = each(term.values, lambda value: values.durations(value.text))
    ran = _between(F("started_at"), Coalesce("ended_at", _at(asked)))
    # what did not run is no longer or shorter than anything, and `-ran` finds it
    return Condition(Q(started_at__isnull=False) & _within(ran, range))


def _waited(term: Term, asked: Asked) -> Condition:
    """The condition for the time that it waited until its latest run began, or waits until now, as
    lists show it."""
    (range,) = each(term.values, lambda value: values.durations(value.text))
    until = Coalesce("started_at", "ended_at", _at(asked))
    return Condition(_within(_between(F("created_at"), until), range))


def _at(asked: Asked) -> SqlValue:
    return SqlValue(asked.now, output_field=DateTimeField())


def _between(start: Combinable, end: Combinable) -> ExpressionWrapper:
    return ExpressionWrapper(end - start, output_field=DurationField())


def _within(duration: ExpressionWrapper, range: Range[timedelta]) -> Q:
    low, high = range.low, range.high
    q = Q()
    if low is not None:
        q &= Q((GreaterThanOrEqual if range.has_low else GreaterThan)(duration, low))
    if high is not None:
        q &= Q((LessThanOrEqual if range.has_high else LessThan)(duration, high))
    return q


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key("status", "Its status; `open` and `ended` stand for several", "status:failed", _status),
        Key("reason", "The code of its end", "reason:worker_lost", _reason),
        Key("is", "`overdue`: open, and past its deadline", "is:overdue", _is),
        Key("action", "The action; `*` at the end stands for any", "action:core.*", _action),
        Key("worker", "The worker of its latest attempt, by name or id", "worker:w1", _worker),
        Key("queue", "Its queue; `default` without one", "queue:mail", _queue),
        Key("by", "Who requested it", "by:user:ada", _by),
        Key("attempt", "The number of its latest attempt", "attempt:>1", _attempt),
        Key("created", "When it was accepted", "created:<1h", _created, has_one=True),
        Key("waited", "How long it waited for its run", "waited:>1m", _waited, has_one=True),
        Key("ran", "How long its run took", "ran:>5s", _ran, has_one=True),
        Key("message", "Has this text in its error", 'message:"no route"', payloads.message),
        Key(
            "param",
            "A parameter, by its path",
            "param.order:7",
            payloads.parameter,
            has_path=True,
        ),
        Key("id", "A part of its id, as lists print it", "id:…f3f", ids.ids),
        Key("correlation", "Its correlation id", "correlation:batch-1", _correlation),
        Key("", "Free text: its id, action or correlation id", "core.echo", ids.words),
    )
}


@cache
def keys() -> dict[str, Key]:
    """The keys of the language, and those that apps bring, by name."""
    brought = frame.collect(lambda app: app.search_keys)
    theirs = {key.name: Key(key.name, key.about, key.example, key.read) for key in brought}
    return KEYS | theirs
