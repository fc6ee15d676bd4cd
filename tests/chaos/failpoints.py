"""Every boundary of a commit, a message and an acknowledgement, and how a run gets there.

`make chaos` fails each of them once in both forms (see `injection`) in real services, while a
client submits and cancels, and the checker of the storms judges what became of it; `make test`
takes all lies and some kills. A test compares this table with the sites that the code has: who adds
one says here which service reaches it and how, or why it cannot be reached.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.chaos import injection

API, EXECUTOR, WORKER = "api", "executor", "worker"
SERVICES = (API, EXECUTOR, WORKER)


@dataclass(frozen=True)
class Boundary:
    """How a site is reached."""

    services: tuple[str, ...] = ()
    provoked_by: str = ""
    """What the campaign does beside the load; see `Provoker`."""

    campaign: str = ""
    """The one campaign that reaches it, where the usual storm does not."""

    exempt: str = ""
    """Why it is never reached, for one that is not."""


@dataclass(frozen=True)
class Failpoint:
    """One boundary, failing in one service in one form."""

    service: str
    site: str
    form: str
    provoked_by: str = ""

    def __str__(self) -> str:
        return injection.file_name(self.service, self.site, self.form)


def _in(*services: str, by: str = "") -> Boundary:
    return Boundary(services, by)


def _of_gates(*, by: str = "") -> Boundary:
    return Boundary((EXECUTOR,), by, campaign="gates")


CHECK = "told again at the next check, as long as it is so"
CODE = "no host of a storm lacks a pack's code; looked at again at the next heartbeat if it does"
TRIED = (
    "only after an executor died, or failed, with the task in hand: found again until it is done"
)
ASKED = (
    "no storm asks people: tests/inquiries and its scenario lose each message and kill executors"
)
FAULT = "of an event or an enforcement that a fault of ours holds up, and no storm has one"
TRACES = "no storm has traces on; the acceptance and what is sent after it are the same"
ORDER = "an operator's order: whoever gave it sees the error, and gives it again"

JOBS = "of jobs: no message of a storm asks about one"

_BY_SITE: dict[str, Boundary] = {
    # --- accepting and cancelling ---
    "executions.placing:insert:execute": _in(API),
    "executions.requests:_insert:atomic": _in(API, by="submit quickly"),
    "executions.requests:_insert:bulk_create": _in(API, by="submit quickly"),
    "executions.requests:_insert:insert_many": _in(API, by="submit quickly"),
    "executions.requests:_insert:insert_many#2": _in(EXECUTOR, by="request tasks"),
    "executions.requests:request_many:send_soon": _in(API),
    "executions.requests:_accept_traced:atomic": Boundary(exempt=TRACES),
    "executions.requests:_accept_traced.send:send_soon": Boundary(exempt=TRACES),
    "executions.cancellation:_cancel:transition": _in(API),
    "executions.cancellation:_cancel:send_soon": _in(API),
    "executions.cancellation:_cancel:transition#2": _in(API, by="cancel what runs"),
    "executions.cancellation:_cancel:send_soon#2": _in(API, by="cancel what runs"),
    # --- scheduling ---
    "executions.scheduling:_place_default:atomic": _in(EXECUTOR),
    "executions.scheduling:_screen:atomic": _in(EXECUTOR),
    "executions.queued:schedule:atomic": _in(EXECUTOR, by="fill a queue"),
    "executions.queued:place:atomic": _in(EXECUTOR),
    "models.backlog:named:execute": _in(EXECUTOR),
    "models.backlog:first_of_default:execute": _in(EXECUTOR),
    "models.backlog:queues_with_work:execute": _in(EXECUTOR, by="fill a queue"),
    "models.backlog:first_of_queues:execute": _in(EXECUTOR, by="fill a queue"),
    "executions.assigning:_record:atomic": _in(EXECUTOR),
    "executions.assigning:_move:transition_many": _in(EXECUTOR),
    "executions.assigning:_put_off:update": _in(EXECUTOR, by="fill the fleet"),
    "executions.dispatching:dispatch:send": _in(EXECUTOR),
    "executions.dispatching:dispatch:transition_many": _in(EXECUTOR, by="fail a dispatch"),
    "executions.dispatching:dispatch_unclaimed:update_unheld": _in(
        EXECUTOR, by="leave a dispatch unclaimed"
    ),
    "executions.dispatching:_settle_unroutable:transition_many": _in(
        EXECUTOR, by="delete worker queue"
    ),
    "executions.dispatching:_end_unroutable:atomic": Boundary(
        exempt="of what is pinned to a retired worker, and nobody retires one in a storm"
    ),
    "executions.assigning:_let_wait:transition_many": _in(
        EXECUTOR, by="ask for what nobody offers"
    ),
    "tasks.batch_scheduler:Scheduler._take_in:ack": _in(EXECUTOR),
    "tasks.batch_scheduler:Scheduler._take_in:reject": _in(EXECUTOR, by="garbage on every queue"),
    # --- an attempt ---
    "workers.desk:Desk.claim_waiting:acknowledge_message": _in(WORKER),
    "workers.attempts:_LastOne.__call__:acknowledge": _in(WORKER),
    "executions.attempts:claim:claim": _in(WORKER),
    "executions.attempts:_together:atomic": _in(WORKER),
    "executions.attempts:_end:transition_many": _in(WORKER, EXECUTOR),
    "executions.attempts:_end:send_soon": _in(WORKER, EXECUTOR),
    "executions.attempts:_end_canceling:transition_many": _in(WORKER, by="cancel what runs"),
    "executions.attempts:end_all:atomic": _in(EXECUTOR),
    "executions.attempts:give_back:transition_many": _in(WORKER, by="stop a worker"),
    "executions.attempts:give_back:send_soon": _in(WORKER, by="stop a worker"),
    "executions.holdings:set_run_deadlines:atomic": _in(WORKER, by="step the clock"),
    "executions.holdings:set_run_deadlines:update": _in(WORKER, by="step the clock"),
    "executions.sweeping:bring_forward:update_unheld": _in(EXECUTOR, by="step the clock"),
    "executions.sweeping:bring_forward:update_unheld#2": _in(EXECUTOR, by="step the clock"),
    "workflows.engine.polling:bring_forward:update": _in(EXECUTOR, by="step the clock"),
    "maintenance:run:claim": _in(EXECUTOR),
    "maintenance:_bring_forward:atomic": _in(EXECUTOR),
    "models.maintenance:TickQuerySet.go_on_after_set_back:update": Boundary(
        exempt="only of rows that are held just when the clock is set back"
    ),
    "models.maintenance:TickQuerySet.clock_was_set_back:get_or_create": _in(EXECUTOR),
    "models.maintenance:TickQuerySet.clock_was_set_back:update": _in(EXECUTOR),
    "models.maintenance:TickQuerySet.clock_was_set_back:update_or_create": _in(
        EXECUTOR, by="step the clock"
    ),
    "workers.bootsteps:CancelStep._on_message:ack": _in(WORKER, by="cancel what runs"),
    "workers.bootsteps:CancelStep._on_message:reject": _in(WORKER, by="garbage on every queue"),
    "workers.strategies:run_claimed.on_message:reject_log_error": _in(
        WORKER, by="garbage on every queue"
    ),
    "workers.strategies:_refuse:reject": Boundary(
        exempt="only of a stock Celery worker: executors refuse a dispatch before (unreadable.py)"
    ),
    "tasks.unreadable:reject:reject_log_error": _in(WORKER, EXECUTOR, by="garbage on every queue"),
    # --- the life of a worker ---
    "fleet.lives:enlist:get_or_create": _in(WORKER, by="stop a worker"),
    "fleet.lives:enlist:update": Boundary(
        exempt="labels change only when somebody changes the command"
    ),
    "fleet.lives:register:atomic": _in(WORKER, by="stop a worker"),
    "fleet.lives:register:save": _in(WORKER, by="stop a worker"),
    "fleet.lives:admit:atomic": _in(WORKER, by="stop a worker"),
    "fleet.lives:beat:update": _in(WORKER),
    "fleet.lives:drain:atomic": _in(WORKER, by="stop a worker"),
    "fleet.lives:leave:atomic": _in(WORKER, by="stop a worker"),
    "fleet.lives:change:save": _in(WORKER, by="stop a worker"),
    "fleet.lives:note:create": _in(WORKER, by="stop a worker"),
    "workers.departure:Departure._go_with_stuck_threads:atomic": Boundary(
        exempt="only a thread that is stuck leads there, and no action of a storm runs in one"
    ),
    "fleet.lives:mark_stale:atomic": _in(EXECUTOR, by="freeze worker"),
    "fleet.lives:mark_unhealthy:atomic": Boundary(exempt=CHECK),
    "fleet.lives:mark_healthy:atomic": Boundary(exempt=CHECK),
    "fleet.lives:have_code:atomic": Boundary(exempt=CODE),
    "fleet.lives:lack_code:atomic": Boundary(exempt=CODE),
    "fleet.pauses:pause:atomic": _in(WORKER),
    "fleet.pauses:set_pauses:atomic": _in(WORKER),
    "executions.removal:_remove:save": Boundary(exempt=ORDER),
    "executions.removal:_remove:update": Boundary(exempt=ORDER),
    "executions.removal:begin:atomic": Boundary(exempt=ORDER),
    "executions.removal:begin:save": Boundary(exempt=ORDER),
    "executions.removal:finish:atomic": Boundary(exempt=ORDER),
    "fleet.orders:cordon:atomic": Boundary(exempt=ORDER),
    "fleet.orders:uncordon:atomic": Boundary(exempt=ORDER),
    "fleet.orders:order_drain:atomic": Boundary(exempt=ORDER),
    "fleet.orders:retire:atomic": Boundary(exempt=ORDER),
    # --- tasks ---
    "workflows.engine.requests:request:atomic": _in(API, by="request tasks"),
    "workflows.engine.requests:request:bulk_create": _in(API, by="request tasks"),
    "workflows.engine.requests:request:send_soon": _in(API, by="request tasks"),
    "workflows.engine.advancing:advance:atomic": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.advancing:advance_free:atomic": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.advancing:_write:update": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.tries:_take_in_hand:execute": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.tries:begin_free:execute": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.tries:begin:atomic": Boundary(exempt=TRIED),
    "workflows.engine.tries:_count:update": Boundary(exempt=TRIED),
    "workflows.engine.tries:failed:atomic": Boundary(exempt=TRIED),
    "workflows.engine.tries:_give_up:transition": Boundary(exempt=TRIED),
    "workflows.engine.tries:_give_up:update": Boundary(exempt=TRIED),
    "workflows.engine.enqueuing:_request_all:atomic": Boundary(exempt=TRIED),
    "workflows.engine.creation:_insert:bulk_create": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.creation:_connect:bulk_create": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.enqueuing:_link:insert_many": _in(EXECUTOR, by="request tasks"),
    "workflows.engine.polling:look:transition_many": _in(EXECUTOR, by="request a slow task"),
    "workflows.engine.polling:look:transition_many#2": Boundary(exempt=ASKED),
    "workflows.engine.turn:Turns.move_steps:transition_many": _in(
        EXECUTOR, API, by="repair a step"
    ),
    "workflows.engine.turn:move_tasks:transition_many": _in(EXECUTOR, API, by="repair a step"),
    "workflows.engine.repairs:_repair:atomic": _in(API, by="repair a step"),
    "workflows.engine.cancellation:cancel:atomic": _in(API, by="cancel a task"),
    "workflows.engine.cancellation:resolve:atomic": Boundary(exempt=ORDER),
    "workflows.engine.cancellation:release:atomic": Boundary(exempt=ORDER),
    "workflows.engine.staleness:detect_stale:atomic": _in(EXECUTOR, by="request a stale task"),
    "workflows.engine.staleness:_settle:transition_many": _in(EXECUTOR, by="request a stale task"),
    # --- gates ---
    "queues.gates.intake:take_in:atomic": _of_gates(),
    "queues.gates.intake:_Batch._copies_of_refusals:update": _of_gates(),
    "queues.gates.intake:_Batch._insert:insert_many": _of_gates(),
    "queues.gates.intake:_Batch._move:update": Boundary(
        exempt="only where a message comes back before its publish is noted: too seldom to wait for"
    ),
    "queues.gates.jobs:hold_back:update": Boundary(exempt=JOBS),
    "queues.gates.jobs:_claim:atomic": Boundary(exempt=JOBS),
    "queues.gates.jobs:_claim:update": Boundary(exempt=JOBS),
    "queues.gates.jobs:_release:atomic": Boundary(exempt=JOBS),
    "queues.gates.jobs:_release:update": Boundary(exempt=JOBS),
    "queues.gates.jobs:_release:send_soon": Boundary(exempt=JOBS),
    "queues.gates.jobs:_keep_waiting:atomic": Boundary(exempt=JOBS),
    "queues.gates.jobs:_keep_waiting:update": Boundary(exempt=JOBS),
    "queues.gates.jobs:_cancel:atomic": Boundary(exempt=JOBS),
    "queues.gates.jobs:_note:update": Boundary(exempt=JOBS),
    "queues.gates.keeping:Plan._note:update_or_create": _of_gates(),
    "queues.gates.keeping:Plan.leave:delete": _of_gates(by="stop an executor"),
    "queues.gates.keeping:pass_on:send_raw": _of_gates(),
    "queues.gates.telling:claim_due:atomic": _of_gates(),
    "queues.gates.telling:claim_due:update": _of_gates(by="delete output queue"),
    "queues.gates.telling:_send:send_raw": _of_gates(),
    "queues.gates.telling:_mark:atomic": _of_gates(),
    "queues.gates.telling:_mark:update": _of_gates(),
    "queues.gates.telling:_mark:update#2": _of_gates(),
    "queues.gates.telling:_mark:update#3": _of_gates(by="delete output queue"),
    "tasks.gates:Keeper._let_go:ack": Boundary(
        exempt="of a delivery that is held for longer than the broker allows, and none is"
    ),
    "tasks.gates:Keeper._hold:ack": _of_gates(),
    "tasks.gates:Keeper._pass_on:ack": _of_gates(),
    "tasks.gates:Keeper._tell_again:ack": _of_gates(),
    "tasks.gates:Keeper._settle:ack": _of_gates(),
    "queues.gates.orders:tell_again:update": Boundary(exempt=ORDER),
    "queues.gates.orders:tell_again:update#2": Boundary(exempt=ORDER),
    "queues.gates.orders:send:send_raw": Boundary(exempt=ORDER),
    "queues.gates.orders:send:send_raw#2": Boundary(exempt=ORDER),
    # --- inquiries ---
    "inquiries.asking:ask:atomic": Boundary(exempt=ASKED),
    "inquiries.asking:ask:bulk_create": Boundary(exempt=ASKED),
    "inquiries.waiting:_take_one:atomic": Boundary(exempt=ASKED),
    "inquiries.waiting:_hold:bulk_create": Boundary(exempt=ASKED),
    "inquiries.answering:_end:atomic": Boundary(exempt=ASKED),
    "inquiries.answering:_end:transition_many": Boundary(exempt=ASKED),
    "inquiries.answering:_end:send_soon": Boundary(exempt=ASKED),
    "inquiries.resuming:_resume:atomic": Boundary(exempt=ASKED),
    "inquiries.resuming:_resume:update": Boundary(exempt=ASKED),
    "inquiries.resuming:_release:atomic": Boundary(exempt=ASKED),
    "inquiries.resuming:_release:update": Boundary(exempt=ASKED),
    "executions.holding:hold:transition_many": Boundary(exempt=ASKED),
    "executions.holding:answer:transition_many": Boundary(exempt=ASKED),
    "executions.holding:answer:send_soon": Boundary(exempt=ASKED),
    # --- automation ---
    # an executor records several events only as a part of what it commits
    "automation.recording:record_many:atomic": _in(API, by="report events"),
    "automation.recording:_written:execute": _in(EXECUTOR, by="report events"),
    "automation.recording:_written:bulk_create": _in(EXECUTOR, by="report events"),
    "automation.recording:record_many:send_soon": _in(EXECUTOR, by="report events"),
    "automation.matching:_match_together:atomic": _in(EXECUTOR, by="report events"),
    "automation.matching:_match_together:bulk_create": _in(EXECUTOR, by="report events"),
    "automation.matching:_carry_out:send_soon": _in(EXECUTOR, by="report events"),
    "automation.matching:_give_up:update": Boundary(exempt=FAULT),
    "automation.matching:_note_evaluated:update": _in(EXECUTOR, by="report events"),
    "automation.enforcing:_enforce_together:atomic": _in(EXECUTOR, by="report events"),
    "automation.enforcing:_give_up:atomic": Boundary(exempt=FAULT),
    "automation.enforcing:Turn._request:atomic": Boundary(
        exempt="a savepoint: the transaction that commits is that of `_enforce_together`"
    ),
    "automation.enforcing:Turn._move:transition_many": _in(EXECUTOR, by="report events"),
    "automation.suppressing:locked:bulk_create": _in(EXECUTOR, by="report events"),
    "automation.suppressing:extend:update": _in(EXECUTOR, by="report events"),
    "automation.suppressing:count:update": _in(EXECUTOR, by="report events"),
    "inquiries.resuming:bring_forward:update": Boundary(
        exempt="of a question that was asked by a clock that was ahead: done at the next tick"
    ),
    "automation.timers:bring_forward:update": Boundary(
        exempt="of a timer that fired by a clock that was ahead: done at the next tick"
    ),
    "automation.timers:fire_due:atomic": _in(EXECUTOR, by="report events"),
    "automation.timers:_move_on:bulk_create": _in(EXECUTOR, by="report events"),
    "automation.following:_catch_up:atomic": _in(EXECUTOR, by="report events"),
    "automation.following:_catch_up:save": _in(EXECUTOR, by="report events"),
    "automation.following:tell:send_soon": _in(EXECUTOR, WORKER, by="report events"),
    # --- dead letters, and what is looked into ---
    "dead_letters:drain:ack": _in(EXECUTOR, by="make ghost"),
    "dead_letters:settle:atomic": _in(EXECUTOR, by="make ghost"),
    "dead_letters:settle:atomic#2": Boundary(
        exempt="of a letter that the database refuses, and no storm has one: it is drained again"
    ),
    "investigations.opening:keep:insert": _in(EXECUTOR, API, by="investigate"),
    "investigations.opening:keep:insert_many": _in(EXECUTOR, API, by="investigate"),
    "investigations.opening:keep:insert_or_count": _in(EXECUTOR, by="garbage on every queue"),
    "investigations.opening:keep:atomic": _in(API, by="investigate"),
    "investigations.closing:_change:atomic": _in(API, by="investigate"),
    "investigations.closing:_change:update": _in(API, by="investigate"),
    "investigations.closing:_change:create": _in(API, by="investigate"),
    # --- maintenance ---
    "models.maintenance:TickQuerySet.claim:update": _in(EXECUTOR),
    "models.maintenance:TickQuerySet.claim:get_or_create": _in(EXECUTOR, by="forget the ticks"),
    # --- messages ---
    "publisher:_deliver:send": _in(*SERVICES),
    "publisher:_deliver:send#2": _in(*SERVICES, by="fail a first try"),
    "relay:_send_hints:send": _in(API, WORKER),
    "relay:_send_hints:send#2": Boundary(
        exempt="of hints whose shared queue somebody has deleted: what they say is found by looking"
    ),
}

AT_THE_START = ("fleet.lives:enlist:", "fleet.lives:register:", "fleet.lives:note:")
"""A worker that cannot get past these exits, for its supervisor to start it again."""

BOUNDARIES: Mapping[str, Boundary] = MappingProxyType(_BY_SITE)


def failpoints(campaign: str = "") -> Iterator[Failpoint]:
    """Every boundary of this campaign, or of the usual storm, in each of its services, in both
    forms."""
    for site, boundary in BOUNDARIES.items():
        if boundary.campaign != campaign:
            continue
        for service in boundary.services:
            for form in injection.FORMS:
                yield Failpoint(service, site, form, boundary.provoked_by)


def some(*, kills: int, seed: int) -> list[Failpoint]:
    """Of what a load alone reaches all lies, and so many kills: each costs a process's start."""
    reached = [point for point in failpoints() if not point.provoked_by]
    killed = [point for point in reached if point.form == injection.KILL]
    lies = [point for point in reached if point.form == injection.LIE]
    return [*lies, *random.Random(seed).sample(killed, k=kills)]
