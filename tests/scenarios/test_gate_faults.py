"""Whatever dies between a message and its answer: it starts once, and is answered."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import injection
from tests.scenarios import doors, foreign
from tests.scenarios.doors import Door, Doors
from tests.scenarios.foreign import Letter, task_message
from tests.scenarios.installation import REPOSITORY, Backend

SITES = [site.name for site in injection.sites() if "gate" in site.name]

BESIDE: dict[str, str] = {
    "queues.gates.jobs:": "of jobs: no message of this test asks about one",
    "queues.gates.orders:": "an operator's order: whoever gave it gives it again",
    "queues.gates.keeping:Plan.leave:": "of an orderly end: the row is forgotten in time",
    "queues.gates.intake:_Batch._copies_of_refusals:": "of a refused message sent twice",
    "queues.gates.intake:_Batch._move:": "of a message back from the retry queue, at once",
    "queues.gates.telling:_mark:update#3": "of an answer that was not taken",
    "queues.gates.telling:claim_due:update": "only of what its holder did not tell",
    "tasks.gates:Keeper._let_go:": "of a delivery held for longer than the broker allows",
    "tasks.gates:Keeper._hold:": "of a gate with custody `row`",
}


def reached() -> list[str]:
    return [site for site in SITES if not any(site.startswith(each) for each in BESIDE)]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where failpoints of the executor are armed."""
    directory = tmp_path_factory.mktemp("failpoints")
    for name in ("armed", "fired"):
        (directory / name).mkdir()
    return directory


def injected(points: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{REPOSITORY / 'tests/chaos/injected'}:{REPOSITORY}",
        injection.DIRECTORY: str(points),
        injection.ROLE: "executor",
    }


@pytest.fixture(scope="module", params=["quorum", "embedded"])
def opened(request: pytest.FixtureRequest, points: Path) -> Iterator[Doors]:
    name = "embedded" if request.param == "embedded" else "servers"
    backend: Backend = request.getfixturevalue(f"{name}_backend")
    with doors.installed(backend, request.param, **injected(points)) as opened:
        yield opened


@pytest.fixture
def door(opened: Doors) -> Iterator[Door]:
    door = opened.make()
    yield door
    door.close()


class Mix:
    """One message of each kind, and what has to become of it."""

    def __init__(self, door: Door, number: int) -> None:
        self.door, self.label = door, f"{door.name} {number}"
        self.answers: list[Letter] = []

    def send(self) -> None:
        client, queue = self.door.client, self.door.input
        self.door.send(self.label, self.door.note(self.label), "Again")
        client.publish(queue, task_message(f"bad {self.label}", {}, "Unknown"))
        old = {"x-caf-worker-rejected": "TASKMESSAGE_INVALID"}
        client.publish(queue, task_message(f"old {self.label}", {}), old)
        # published twice: it has two answers
        for _ in range(2):
            client.publish(queue, task_message(f"echo {self.label}", {"text": "x"}))

    def is_over(self) -> bool:
        while (letter := self.door.client.get(self.door.output)) is not None:
            self.answers.append(letter)
        wanted = {self.label, f"bad {self.label}", f"echo {self.label}"}
        told = {letter.task["taskId"] for letter in self.answers}
        return wanted <= told and self.door.client.depth(self.door.input) == 0

    def check(self) -> None:
        """One start, and copies of an answer are recognisable."""
        assert len(self.door.installation.journal.starts(self.label)) == 1
        ids: dict[str, set[Any]] = {}
        for letter in self.answers:
            ids.setdefault(letter.task["taskId"], set()).add(letter.properties["message_id"])
        of_ours = {name: found for name, found in ids.items() if not name.startswith("bad")}
        assert all(len(found) == 1 for found in of_ours.values()), ids


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_no_step_of_the_walk_loses_or_repeats_a_task(door: Door, points: Path) -> None:
    """Every commit, publish and acknowledgement: killed before it, and reported as failed after
    it."""
    # what is redelivered without a ticket counts as a lost start, and here nobody else consumes
    door.make(count_redelivered=False)
    unreached = []
    for number, (site, form) in enumerate((s, f) for s in reached() for f in injection.FORMS):
        name = injection.file_name("executor", site, form)
        (points / "fired" / name).unlink(missing_ok=True)  # of the other kind of broker
        (points / "armed" / name).touch()
        mix = Mix(door, number)
        mix.send()
        with contextlib.suppress(AssertionError):
            # a start of an executor may take fifteen seconds where much else runs
            foreign.wait_until((points / "fired" / name).exists, "not fired", 40)
        if (points / "armed" / name).exists():
            unreached.append(name)
            (points / "armed" / name).unlink(missing_ok=True)
        elif form == injection.KILL:
            door.installation.service("executor").exit_status()
            door.installation.start_executor(**injected(points))
        foreign.wait_until(mix.is_over, f"{name}: not all is answered")
        mix.check()
    assert unreached == []


def test_executor_killed_while_a_task_runs_neither_loses_nor_repeats_it(door: Door) -> None:
    door.make()
    label = f"killed {door.name}"
    gate = door.installation.directory / f"gate of {label}"
    door.send("t1", door.note(label, gate=str(gate)), "Again")
    door.installation.wait_for_start(label)

    door.installation.service("executor").kill()
    door.installation.open_gate(label)
    door.installation.start_executor()

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
    foreign.wait_until(lambda: door.client.depth(door.input) == 0, "input is not empty")
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")
    assert len(door.installation.journal.starts(label)) == 1


def test_worker_lost_with_a_task_is_a_lost_start_and_its_waiting_tasks_are_not(
    opened: Doors, door: Door
) -> None:
    """`retry_by: queue`: the lost one comes back through the retry queue, with a count."""
    door.make(retry_by="queue", retry_queue=door.retry)
    installation = door.installation
    label = f"lost {door.name}"
    gate = installation.directory / f"gate of {label}"
    door.send("t1", door.note(label, gate=str(gate)), "Again")
    installation.wait_for_start(label)

    installation.service("w1").kill_tree()
    installation.open_gate(label)
    installation.start_worker("w1", queues=",".join(doors.NAMES))

    answer = door.client.wait(door.output, within_seconds=120)
    assert answer.told == ("t1", "RESULT_SUCCESS")
    assert answer.headers["x-caf-worker-retry"] == 1
    first, second = [row for row in door.tickets() if row.gate_id == door.id]
    assert (first.told_to, second.continues_id) == (door.retry, first.id)
    assert len(installation.journal.starts(label)) == 2


def test_deleted_rejected_queue_keeps_no_other_task_waiting_and_is_made_again(
    opened: Doors, door: Door
) -> None:
    other = opened.make()
    for each in (door, other):
        each.make()
    door.client.delete(door.rejected)
    rejected = {"x-caf-worker-rejected": "TASKMESSAGE_INVALID"}

    door.client.publish(door.input, task_message("old", {}), rejected)
    foreign.wait_until(lambda: door.client.depth(door.input) == 0, "not taken")
    for each in (door, other):
        each.send("t1", {"text": "x"})

    for each in (door, other):
        assert each.client.wait(each.output).told == ("t1", "RESULT_SUCCESS")
    foreign.wait_until(lambda: door._are_there([door.rejected]), "not made again")
    assert door.client.wait(door.rejected).task["taskId"] == "old"
    other.close()


@pytest.fixture
def breaking(opened: Doors) -> Callable[[], object]:
    """What breaks all connections to the broker of the gates."""
    if opened.kind == "embedded":
        # its connections are files: only their processes can lose them
        return lambda: None
    return lambda: opened.installation.backend.close_connections(opened.url)


def test_closed_connections_start_nothing_a_second_time(
    door: Door, breaking: Callable[[], object]
) -> None:
    door.make(queue={"prefetch_buffer": 20})
    labels = [f"cut {number} {door.name}" for number in range(20)]
    for label in labels:
        door.send(label, door.note(label, seconds=0.3), "Again")
    door.installation.wait_for_start(labels[0])

    breaking()
    foreign.wait_until(lambda: _connected(door), "the broker is away")

    _wait_for_answers(door, labels)
    foreign.wait_until(lambda: door.client.depth(door.input) == 0, "input is not empty")
    assert all(len(door.installation.journal.starts(label)) == 1 for label in labels)


@pytest.mark.slow
def test_broker_stopped_under_load_loses_no_answer(opened: Doors, door: Door) -> None:
    if opened.kind == "embedded":
        return  # the embedded broker is a file: it does not stop
    door.make(queue={"prefetch_buffer": 50}, count_redelivered=False)
    labels = [f"stopped {number} {door.name}" for number in range(60)]
    for label in labels[:40]:
        door.send(label, door.note(label, seconds=0.05), "Again")
    rabbit = door.installation.backend.rabbit
    assert rabbit is not None
    door.installation.wait_for_start(labels[5])

    # a quorum queue of RabbitMQ 3.10 on one node is at times without a leader for minutes after it
    # was killed, and answers nobody: a property of the broker
    (rabbit.stop if opened.kind == "quorum" else rabbit.kill)()
    threading.Timer(1.0, rabbit.start).start()
    foreign.wait_until(lambda: _connected(door), "the broker is away")

    for label in labels[40:]:
        _send_until_taken(door, label)
    _wait_for_answers(door, labels)
    assert all(len(door.installation.journal.starts(label)) == 1 for label in labels)


def _wait_for_answers(door: Door, labels: list[str]) -> None:
    """Each message is answered with success; whose confirm was lost is answered again, with the
    same id."""
    ids: dict[tuple[str, str], set[Any]] = {}

    def all_told() -> bool:
        try:
            while (letter := door.client.get(door.output)) is not None:
                ids.setdefault(letter.told, set()).add(letter.properties["message_id"])
        except Exception:  # noqa: BLE001 - of pika, as long as the queue has no leader
            foreign.wait_until(lambda: _connected(door), "the broker is away")
        return len(ids) >= len(labels)

    foreign.wait_until(all_told, "not all is answered", 120)
    assert set(ids) == {(label, "RESULT_SUCCESS") for label in labels}
    assert all(len(found) == 1 for found in ids.values()), ids


def _send_until_taken(door: Door, label: str) -> None:
    """Publish until the broker confirms: a copy of what it had taken starts nothing."""

    def sent() -> bool:
        try:
            door.send(label, door.note(label), "Again")
        except Exception:  # noqa: BLE001 - of pika, as long as the queue has no leader
            foreign.wait_until(lambda: _connected(door), "the broker is away")
            return False
        return True

    foreign.wait_until(sent, f"{label} is not taken")


def _connected(door: Door) -> bool:
    with contextlib.suppress(Exception):
        door.client.close()
    try:
        door.client = door.connect()
        door.client.depth(door.output)
    except Exception:  # noqa: BLE001 - of pika, as long as the broker is away
        return False
    return True
