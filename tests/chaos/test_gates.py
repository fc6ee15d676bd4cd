"""The campaign of gates in small, and what its verdict rests on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos import gate_rules, gates
from tests.chaos.correspondent import was_lost
from tests.chaos.facts import Violation
from tests.chaos.gate_rules import EXCEEDED, INVALID, Gate, Kind, Ledger, Letter, Sent, Ticket
from tests.chaos.outcome import summary
from tests.chaos.stories import event
from tests.scenarios.installation import Backend

MARK = {"mark": "its own"}
GATES = {
    "letters": Gate(2, queues=["letters.in"]),
    "parcels": Gate(2, counts_redelivered=True, queues=["parcels.in", "parcels.retry"]),
}


def sent(kind: Kind = Kind.AGAIN, **changes: Any) -> Sent:
    return dataclasses.replace(Sent("t1", "letters", kind, 1, 1), **changes)


def ticket(**changes: Any) -> Ticket:
    known = Ticket(
        1, "t1", "letters", "e1", status="completed", reason="succeeded", result=MARK, starts=1
    )
    return dataclasses.replace(known, **changes)


def refusal(refused: str = INVALID, **changes: Any) -> Ticket:
    return dataclasses.replace(Ticket(1, "t1", "letters", refusal=refused), **changes)


def answer(**changes: Any) -> Letter:
    known = Letter("t1", "letters", "RESULT_SUCCESS", "e1.answer", execution="e1", data=MARK)
    return dataclasses.replace(known, **changes)


def no(**changes: Any) -> Letter:
    """The answer to a refused message."""
    known = Letter("t1", "letters", "INVALID_TASK", "ticket-1.answer", data={"error": INVALID})
    return dataclasses.replace(known, **changes)


def copy(rejected: str = INVALID, **changes: Any) -> Letter:
    return dataclasses.replace(Letter("t1", "letters", rejected=rejected), **changes)


def truth(**changes: Any) -> Ledger:
    """A message was sent, ran once, and was answered."""
    left = {"letters.in": 0, "letters.out": 3, "parcels.in": 0, "parcels.retry": 0}
    ledger = Ledger(GATES, [sent()], [answer()], [], [ticket()], left)
    return dataclasses.replace(ledger, **changes)


def refused(**changes: Any) -> Ledger:
    """A message that nothing could take was answered, and a copy of it kept."""
    known = {
        "sent": [sent(Kind.UNKNOWN)],
        "answers": [no()],
        "copies": [copy()],
        "tickets": [refusal()],
    }
    return truth(**known | changes)


DEADLY = ticket(status="abandoned", reason="process_lost", result=None, lost=3, starts=3)


def poisoned(**changes: Any) -> Ledger:
    """A message killed whoever ran it, as often as it may."""
    known = {
        "sent": [sent(Kind.POISON)],
        "answers": [answer(status="RESULT_EXCEPTION", data={"error": "process_lost"})],
        "copies": [copy(EXCEEDED, execution="e1")],
        "tickets": [DEADLY],
    }
    return truth(**known | changes)


BACK = ticket(
    id=1, gate="parcels", status="abandoned", reason="worker_lost", is_moved=True, lost=1, result={}
)
"""Lost, and gone to the retry queue."""
CAME_AGAIN = truth(
    sent=[sent(gate="parcels")],
    answers=[answer(gate="parcels", message_id="e2.answer", execution="e2")],
    tickets=[BACK, ticket(id=2, gate="parcels", execution="e2")],
)

TRUTHS: dict[str, Ledger] = {
    "one answer": truth(),
    "answer lost with the queue that its client deleted": truth(
        answers=[], deletions={"letters": 1}
    ),
    "two answers with one id": truth(answers=[answer(), answer()]),
    "sent twice": truth(sent=[sent(tries=2, confirmed=2)]),
    "never confirmed, and nowhere": truth(
        sent=[sent(confirmed=0)], answers=[], tickets=[]
    ),
    "refused": refused(),
    "refused once for each time that it was sent": refused(
        sent=[sent(Kind.GARBAGE, tries=2, confirmed=2)],
        answers=[no(), no(message_id="ticket-2.answer"), no()],
        tickets=[refusal(is_moved=True), refusal(id=2)],
        copies=[copy(), copy()],
    ),
    "failed by its own word": truth(
        sent=[sent(Kind.FAILS)],
        answers=[answer(status="RESULT_FAILURE", data={})],
        tickets=[ticket(status="failed", reason="action_failed")],
    ),
    "timed out": truth(
        answers=[answer(status="RESULT_EXCEPTION", data={})],
        tickets=[ticket(status="timeout", reason="run_timeout")],
    ),
    "poison": poisoned(),
    "poison that was lost before it could say so": poisoned(
        tickets=[dataclasses.replace(DEADLY, starts=2)]
    ),
    "rejected before": truth(
        sent=[sent(Kind.OLD)], answers=[], tickets=[], copies=[copy()]
    ),
    "came again through the retry queue": CAME_AGAIN,
    "beyond the limit by redeliveries": truth(
        sent=[sent(gate="parcels")],
        answers=[no(gate="parcels", status="RESULT_EXCEPTION")],
        tickets=[refusal(EXCEEDED, gate="parcels")],
        copies=[copy(EXCEEDED, gate="parcels")],
    ),
}  # fmt: skip

Rule = Callable[[Ledger], Iterator[Violation]]

LIES: dict[str, tuple[Rule, Ledger]] = {
    "lost": (gate_rules.messages_end_once, truth(answers=[], tickets=[])),
    "two executions": (
        gate_rules.messages_end_once,
        truth(tickets=[ticket(), ticket(id=2, execution="e2")]),
    ),
    "an execution and a refusal": (
        gate_rules.messages_end_once,
        truth(tickets=[ticket(), refusal(id=2)]),
    ),
    "invalid, and it ran": (gate_rules.messages_end_once, truth(sent=[sent(Kind.GARBAGE)])),
    "valid, and refused": (gate_rules.messages_end_once, refused(sent=[sent()])),
    "refused more often than sent": (
        gate_rules.messages_end_once,
        refused(tickets=[refusal(), refusal(id=2)]),
    ),
    "beyond the limit by redeliveries that do not count": (
        gate_rules.messages_end_once,
        refused(sent=[sent()], tickets=[refusal(EXCEEDED)]),
    ),
    "still open": (gate_rules.messages_end_once, truth(tickets=[ticket(status="running")])),
    "ticket that was not answered": (
        gate_rules.messages_end_once,
        truth(tickets=[ticket(is_told=False)]),
    ),
    "rejected before, and taken in": (
        gate_rules.messages_end_once,
        truth(sent=[sent(Kind.OLD)]),
    ),
    "back to the retry queue although it completed": (
        gate_rules.messages_end_once,
        dataclasses.replace(
            CAME_AGAIN,
            tickets=[
                dataclasses.replace(BACK, status="completed", reason="succeeded"),
                CAME_AGAIN.tickets[1],
            ],
        ),
    ),
    "no answer": (gate_rules.messages_are_answered, truth(answers=[])),
    "no answer, and another gate's queue was deleted": (
        gate_rules.messages_are_answered,
        truth(answers=[], deletions={"parcels": 9}),
    ),
    "more answers lost than can be on their way to a queue": (
        gate_rules.messages_are_answered,
        truth(sent=[sent()] * 4, answers=[], deletions={"letters": 1}),
    ),
    "no answer to a refused one": (gate_rules.messages_are_answered, refused(answers=[])),
    "answer to one that was rejected before": (
        gate_rules.messages_are_answered,
        truth(sent=[sent(Kind.OLD)], tickets=[]),
    ),
    "answer of another status than its row": (
        gate_rules.messages_are_answered,
        truth(answers=[answer(status="RESULT_EXCEPTION")]),
    ),
    "answer with another result than its row": (
        gate_rules.messages_are_answered,
        truth(answers=[answer(data={"mark": "another's"})]),
    ),
    "answer by another gate": (
        gate_rules.messages_are_answered,
        truth(answers=[answer(gate="parcels")]),
    ),
    "second answer with another id": (
        gate_rules.answers_have_one_id,
        truth(answers=[answer(), answer(message_id="x")]),
    ),
    "answer with the id of a moved ticket": (
        gate_rules.answers_have_one_id,
        dataclasses.replace(
            CAME_AGAIN, answers=[*CAME_AGAIN.answers, answer(message_id="e1.answer")]
        ),
    ),
    "refused one with an id of nothing": (
        gate_rules.answers_have_one_id,
        refused(answers=[no(), no(message_id="ticket-7.answer")]),
    ),
    "began too often": (gate_rules.starts_have_a_limit, truth(tickets=[ticket(starts=4)])),
    "poison that ran once more": (
        gate_rules.starts_have_a_limit,
        poisoned(tickets=[dataclasses.replace(DEADLY, lost=4, starts=4)]),
    ),
    "poison that ran once less": (
        gate_rules.starts_have_a_limit,
        poisoned(tickets=[dataclasses.replace(DEADLY, lost=2, starts=2)]),
    ),
    "poison that completed": (
        gate_rules.starts_have_a_limit,
        poisoned(tickets=[dataclasses.replace(DEADLY, status="completed")]),
    ),
    "began too often over the retry queue": (
        gate_rules.starts_have_a_limit,
        dataclasses.replace(
            CAME_AGAIN,
            tickets=[dataclasses.replace(BACK, starts=3), CAME_AGAIN.tickets[1]],
        ),
    ),
    "refused without a copy": (gate_rules.rejected_copies_fit, refused(copies=[])),
    "poison without a copy": (gate_rules.rejected_copies_fit, poisoned(copies=[])),
    "copy of what went well": (gate_rules.rejected_copies_fit, truth(copies=[copy()])),
    "copy for another reason": (gate_rules.rejected_copies_fit, refused(copies=[copy(EXCEEDED)])),
    "copies of two ends": (
        gate_rules.rejected_copies_fit,
        poisoned(copies=[copy(EXCEEDED, execution="e1"), copy(EXCEEDED, execution="e2")]),
    ),
    "rejected before, and not kept": (
        gate_rules.rejected_copies_fit,
        truth(sent=[sent(Kind.OLD)], answers=[], tickets=[]),
    ),
    "left in the input queue": (gate_rules.nothing_is_left, truth(left={"letters.in": 1})),
    "queues that nobody could read": (gate_rules.nothing_is_left, truth(left={})),
    "left in the retry queue": (gate_rules.nothing_is_left, truth(left={"parcels.retry": 1})),
    "answer to nothing": (
        gate_rules.nothing_is_invented,
        truth(answers=[answer(), answer(task_id="t9")]),
    ),
    "ticket of nothing": (
        gate_rules.nothing_is_invented,
        truth(tickets=[ticket(), ticket(id=2, task_id="t9")]),
    ),
    "copy of nothing": (
        gate_rules.nothing_is_invented,
        truth(copies=[copy(task_id="t9")]),
    ),
}


@pytest.mark.parametrize("story", TRUTHS)
def test_ledger_of_a_good_run_has_no_violation(story: str) -> None:
    assert gate_rules.check(TRUTHS[story]) == []


@pytest.mark.parametrize("lie", LIES)
def test_lie_is_found_by_its_rule(lie: str) -> None:
    rule, ledger = LIES[lie]
    assert list(rule(ledger)), lie


def test_every_rule_has_a_lie() -> None:
    assert {rule for rule, _ in LIES.values()} == set(gate_rules.RULES)


def test_attempt_is_lost_if_it_had_begun_and_nobody_saw_its_end() -> None:
    assert was_lost(event("retry", reason="process_lost"))
    assert was_lost(event("abandon", reason="worker_lost"))
    assert not was_lost(event("give_back", reason="worker_stopped", from_status="scheduled"))
    assert not was_lost(event("defer", reason="task_rejected"))


@pytest.mark.slow
@pytest.mark.scenario
@pytest.mark.timeout(900)
@pytest.mark.alone
def test_messages_are_answered_while_services_die(real: Backend, seed: int) -> None:
    """`make chaos ARGS=gates` is the large one."""
    outcome = gates.run(real, messages=200, seconds=15, times=1, kinds=gates.QUICK, seed=seed)
    assert not outcome.violations, summary(outcome)
