"""A worker whose host lacks a pack's code: known, given nothing that needs it, and said so."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from orchestrator.core import advice, clock, executions, fleet, messages
from orchestrator.core.executions import Ended
from orchestrator.core.fleet import Need, NoWorkerAvailable, Placement
from orchestrator.core.management.ping import of_worker
from orchestrator.core.models import Execution, ExecutionEvent, Pack, Worker, WorkerEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests import commands
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
WHY = "no such folder: /packs/maps"
PACK = {"maps": WHY}
CODE = ("maps", "maps.draw")
LATER = NOW + timedelta(seconds=1)


def make_drawing(status: str = S.REQUESTED, **values: Any) -> Execution:
    action = make_action("maps.draw", **values.pop("action", {}))
    return make_execution(status, action=action, **values)


def unloaded(*rows: Execution, missing: str = "maps", now: datetime = NOW) -> set[Any]:
    """Their worker could not load them."""
    result = {"message": WHY, "missing": missing}
    ended = [Ended(row, Reason.PACK_UNAVAILABLE, result) for row in rows]
    return executions.finish(ended, now=now, actor="w1")


def view() -> Placement:
    placement = Placement()
    placement.refresh(now=NOW)
    return placement


# --- what a worker says --------------------------------------------------------------------------


def test_worker_registers_with_what_it_lacks_and_a_new_life_begins_without() -> None:
    worker = make_worker()
    life: dict[str, Any] = {
        "capacity": 1,
        "runtimes": ["python"],
        "host": "h",
        "pid": 1,
        "version": "5",
    }
    registered = fleet.register(worker_id=worker.pk, now=NOW, missing_code=PACK, **life)
    assert registered.missing_code == Worker.objects.get().missing_code == PACK
    fleet.register(worker_id=worker.pk, now=NOW, **life)
    assert Worker.objects.get().missing_code == {}


def test_what_a_worker_lacks_is_added_and_taken_away_with_an_event_each() -> None:
    worker = make_worker()
    life = {"worker_id": worker.pk, "incarnation": 1}
    assert fleet.lack_code(**life, missing=PACK, now=NOW)
    assert not fleet.lack_code(**life, missing=PACK, now=NOW), "no news"
    assert fleet.lack_code(**life, missing={"b.x": "no such file: /b/x.py"}, now=NOW)
    assert Worker.objects.get().missing_code == {**PACK, "b.x": "no such file: /b/x.py"}
    assert fleet.have_code(**life, names=["maps"], now=NOW)
    assert not fleet.have_code(**life, names=["maps"], now=NOW)
    assert Worker.objects.get().missing_code == {"b.x": "no such file: /b/x.py"}
    events = [(event.kind, event.reason) for event in WorkerEvent.objects.all()]
    assert events == [
        ("lacks_code", f"maps: {WHY}"),
        ("lacks_code", "b.x: no such file: /b/x.py"),
        ("has_code", "maps"),
    ]


@pytest.mark.parametrize("changed", [{"incarnation": 2}, {"status": "inactive", "gone_at": NOW}])
def test_another_life_of_a_worker_or_one_that_is_gone_is_left_alone(changed: Any) -> None:
    worker = make_worker()
    Worker.objects.update(**changed)
    life = {"worker_id": worker.pk, "incarnation": 1}
    assert not fleet.lack_code(**life, missing=PACK, now=NOW)
    assert not fleet.have_code(**life, names=["maps"], now=NOW)
    assert Worker.objects.get().missing_code == {}


# --- an attempt that could not begin -------------------------------------------------------------


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_what_could_not_be_loaded_goes_back_at_once_and_counts_for_no_policy(
    sent: list[messages.Message], max_attempts: int
) -> None:
    policy = {"max_attempts": max_attempts}
    running = make_drawing(S.RUNNING, retry_policy=policy)
    assert unloaded(running) == {running.key}
    row = reread(running)
    assert (row.status, row.reason, row.retry_count) == ("requested", "pack_unavailable", 0)
    assert (row.next_retry_at, row.attempt) == (None, 1)
    assert row.result is not None
    assert row.result["message"] == WHY, "said until there is something else to say"
    assert [message.task for message in sent] == [messages.SCHEDULE]
    assert Worker.objects.get().missing_code == PACK
    (event,) = ExecutionEvent.objects.of(running.pk)
    assert (event.event, event.reason) == ("give_back", "pack_unavailable")


def test_single_action_that_could_not_be_loaded_leaves_the_rest_of_its_pack() -> None:
    unloaded(make_drawing(S.RUNNING), missing="maps.draw")
    assert Worker.objects.get().missing_code == {"maps.draw": WHY}


def test_name_that_is_neither_the_pack_nor_the_action_is_not_believed() -> None:
    """A runtime that somebody added may say anything."""
    unloaded(make_drawing(S.RUNNING), missing="core")
    assert Worker.objects.get().missing_code == {"maps.draw": WHY}


def test_what_could_not_be_loaded_and_is_to_be_cancelled_is_cancelled_before_it_began() -> None:
    running = make_drawing(S.RUNNING)
    Execution.objects.update(status=S.CANCELING, cancel_requested_at=NOW)
    assert unloaded(running) == {running.key}
    assert (reread(running).status, reread(running).reason) == ("cancelled", "cancelled")


def test_end_of_an_attempt_that_was_given_up_changes_no_execution() -> None:
    running = make_drawing(S.RUNNING)
    Execution.objects.update(attempt=2)
    assert unloaded(running) == set()
    assert reread(running).status == "running"


def test_it_goes_elsewhere_although_the_fleet_was_looked_at_before_its_worker_said_so() -> None:
    lacking, fit = make_worker("w1"), make_worker("w2", capacity=1)
    for _ in range(3):  # so that the other one looks better
        make_execution(S.RUNNING, worker=fit)
    placement = view()
    running = make_drawing(S.RUNNING, worker=lacking, now=NOW)
    unloaded(running)
    Execution.objects.filter(worker=fit).delete()
    schedule(running, placement=placement, now=NOW)
    assert reread(running).worker_id == fit.pk


def test_where_nobody_has_the_pack_it_fails_or_waits_as_its_action_says() -> None:
    make_worker("w1", missing_code=PACK)
    make_worker("w2", missing_code=PACK)
    make_worker("w3", missing_code={"maps.draw": "no such file: /packs/maps/draw.py"})
    fails = make_drawing(created_at=LATER)
    waits = make_execution(action=make_action("maps.print", on_no_worker="wait"))
    Worker.objects.filter(name="w3").update(
        missing_code=dict.fromkeys(("maps.draw", "maps.print"), "no such file: /m.py")
    )
    schedule(fails, waits, now=LATER)
    row = reread(fails)
    assert (row.status, row.reason) == ("failed", "no_worker_available")
    assert row.result is not None
    assert row.result["message"] == (
        "no workers available: lacks the action maps.draw (no such file: /m.py): w3; "
        f"lacks the pack maps ({WHY}): w1, w2"
    )
    row = reread(waits)
    assert row.status == "scheduling"
    assert "lacks the pack maps" in row.wait_reason
    fleet.have_code(worker_id=make_worker("w2").pk, incarnation=1, names=["maps"], now=LATER)
    schedule(waits, now=NOW + timedelta(seconds=4))
    assert reread(waits).worker_id == make_worker("w2").pk


def test_what_was_accepted_before_its_only_worker_was_found_to_lack_it_waits_for_a_moment() -> None:
    running = make_drawing(S.RUNNING)
    unloaded(running)
    schedule(running, now=NOW)
    assert (reread(running).status, reread(running).reason) == ("scheduling", "pack_unavailable")
    later = make_drawing(created_at=LATER, now=LATER)
    schedule(later, now=LATER)
    assert reread(later).status == "failed", "there was no worker for it when it was accepted"
    grace = timedelta(seconds=settings.MUSTER.no_worker_grace_seconds)
    Worker.objects.update(heartbeat_at=NOW + grace)
    schedule(running, now=NOW + grace)
    assert (reread(running).status, reread(running).reason) == ("failed", "no_worker_available")


# --- placement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [PACK, {"maps.draw": "no such file: /m.py"}])
def test_worker_is_given_nothing_that_it_lacks_and_everything_else(missing: Any) -> None:
    make_worker("w1", missing_code=missing)
    fit = make_worker("w2")
    placement = view()
    chosen = {placement.pick(runtime="python", code=CODE, now=NOW) for _ in range(6)}
    assert chosen == {fit.pk}
    others = {
        placement.pick(runtime="python", code=("core", "core.echo"), now=NOW) for _ in range(4)
    }
    assert make_worker("w1").pk in others


def test_single_missing_action_does_not_keep_away_the_rest_of_its_pack() -> None:
    worker = make_worker(missing_code={"maps.draw": "no such file: /m.py"})
    assert view().pick(runtime="python", code=("maps", "maps.print"), now=NOW) == worker.pk
    with pytest.raises(NoWorkerAvailable, match=r"lacks the action maps\.draw"):
        view().pick(runtime="python", code=CODE, now=NOW)


def test_choice_costs_no_more_while_nobody_lacks_anything() -> None:
    make_worker()
    placement = view()
    for name in ("a", "b", "c"):
        placement.pick(runtime="python", code=(name, f"{name}.x"), now=NOW)
    assert len(placement._heaps) == 1


def test_pinned_execution_is_refused_with_what_its_worker_lacks() -> None:
    worker = make_worker(missing_code=PACK)
    make_worker("w2")
    with pytest.raises(NoWorkerAvailable) as error:
        view().pick(runtime="python", code=CODE, pinned=worker.pk, now=NOW)
    assert str(error.value) == (
        f"no workers available: the one asked for lacks the pack maps ({WHY})"
    )


def test_action_that_needs_no_folder_goes_to_a_worker_without_it() -> None:
    make_worker(runtimes=["http"], missing_code=PACK)
    asked = make_drawing(action={"runtime": "http", "entry_point": "http://127.0.0.1"})
    assert asked.needed_code == ()
    schedule(asked, now=NOW)
    assert reread(asked).status == "scheduled"


def test_worker_that_lacks_the_code_was_present_for_it_until_that_was_known() -> None:
    life = {"worker_id": make_worker().pk, "incarnation": 1}
    fleet.lack_code(**life, missing=PACK, now=NOW)
    fleet.lack_code(**life, missing={"maps-2": WHY}, now=LATER)
    times = {"now": LATER, "since": NOW - timedelta(seconds=1)}
    assert fleet.present_until(Need("python"), **times) == LATER
    need = Need.of("python", None, CODE)
    assert fleet.present_until(need, **times) == NOW, "since then it is known to lack it"
    assert fleet.present_until(Need.of("python", None, ("core", "core.x")), **times) == LATER


def test_what_waits_for_a_worker_that_lacks_its_code_goes_elsewhere() -> None:
    lacking, fit = make_worker("w1", missing_code=PACK), make_worker("w2")
    rows = {
        "moved": make_drawing(S.SCHEDULED, worker=lacking),
        "other": make_execution(S.SCHEDULED, worker=lacking),
        "fit": make_drawing(S.SCHEDULED, worker=fit),
        "pinned": make_drawing(S.SCHEDULED, worker=lacking, pinned_worker=lacking),
    }
    assert executions.release_stranded(now=NOW) == 1
    statuses = {name: reread(row).status for name, row in rows.items()}
    assert statuses == {
        "moved": "requested",
        "other": "scheduled",
        "fit": "scheduled",
        "pinned": "scheduled",
    }


# --- where it is said ----------------------------------------------------------------------------


def test_ping_listing_and_advice_say_what_a_worker_lacks() -> None:
    now = clock.now()
    make_worker("w1", now=now, missing_code=PACK, host="web1")
    make_action("maps.draw")
    Pack.objects.update(path="/packs/maps")
    is_well, line = of_worker("w1", now=now)
    assert is_well, "it runs what else there is"
    assert f"active, lacks the pack maps: {WHY}" in line
    listing = commands.printed("workers", "list")
    assert "lacks" in listing
    assert commands.document("workers", "show", "w1")["missing_code"] == PACK
    assert advice.lacks() == [advice.Lack("w1", "web1", "maps", WHY, "/packs/maps")]
    advised = commands.printed("advise")
    assert f"w1 lacks the pack maps: {WHY}. It gets no work that needs it." in advised
    assert "rsync -a /packs/maps web1:/packs/" in advised
    document = commands.document("advise")
    assert document["missing_code"] == [
        {"worker": "w1", "host": "web1", "name": "maps", "why": WHY, "pack_path": "/packs/maps"}
    ]
    Worker.objects.update(gone_at=now, status="inactive")
    assert advice.lacks() == [], "of a worker that is gone there is nothing to say"
