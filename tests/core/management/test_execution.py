"""`manage.py execution`: submit, list, show, watch, cancel, and one clear line when it cannot."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from orchestrator.core import clock, cursors, executions, live_output, relay
from orchestrator.core.live_output import Piece
from orchestrator.core.management import output
from orchestrator.core.models import Execution
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import transition
from orchestrator.core.states import ExecutionStatus
from tests import commands
from tests.factories import NOW, make_action, make_dlq_entry, make_execution, make_worker
from tests.rows import reread

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

S = ExecutionStatus


run, document, refused = commands.of("execution")


# --- submit --------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_nothing_else() -> None:
    make_action()
    assert run("submit", "core.echo") == f"{Execution.objects.get().pk}\n"


def test_parameters_are_json_where_they_parse_and_text_elsewhere(tmp_path: Path) -> None:
    make_action()
    file = tmp_path / "parameters.json"
    file.write_text('{"list": [1, 2], "a": "from file"}')
    params = ["a=1.5", "b=true", "c=hello world", 'd="7"', "e=a=b", "f=", "g=NaN", "h={"]
    arguments = [part for param in params for part in ("--param", param)]
    run("submit", "core.echo", "--parameters", f"@{file}", *arguments)
    assert Execution.objects.get().parameters == {
        "list": [1, 2],
        "a": 1.5,
        "b": True,
        "c": "hello world",
        "d": "7",
        "e": "a=b",
        "f": "",
        "g": "NaN",
        "h": "{",
    }


def test_every_option_reaches_the_row() -> None:
    make_action()
    worker = make_worker("w1")
    run(
        *("submit", "core.echo", "--parameters", '{"a": 1}', "--worker", "w1", "--priority", "-5"),
        *("--timeout-seconds", "1.5", "--queue-ttl-ms", "900", "--deadline-seconds", "60"),
        *("--idempotency-key", "k", "--correlation-id", "c", "--reason", "moved"),
    )
    row = Execution.objects.get()
    assert (row.pinned_worker_id, row.priority, row.timeout_seconds) == (worker.pk, -5, 1.5)
    assert (row.queue_ttl_ms, row.idempotency_key, row.correlation_id) == (900, "k", "c")
    assert row.request_reason == "moved"
    assert row.deadline_at - row.created_at == timedelta(seconds=60)
    assert row.requested_by.startswith("cli")


def test_worker_is_found_by_name_before_id() -> None:
    make_action()
    by_id = make_worker("w1")
    run("submit", "core.echo", "--worker", str(by_id.pk))
    by_name = make_worker(str(by_id.pk))
    run("submit", "core.echo", "--worker", str(by_id.pk))
    pinned = Execution.objects.order_by("pk").values_list("pinned_worker_id", flat=True)
    assert list(pinned) == [by_id.pk, by_name.pk]


def test_count_submits_as_many_in_batches(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, bulk_limit=4)
    make_action()
    ids = document("submit", "core.echo", "--count", "10")["ids"]
    assert ids == [str(pk) for pk in Execution.objects.order_by("pk").values_list("pk", flat=True)]
    assert len(ids) == 10


def test_ids_of_a_batch_are_printed_before_the_next_one_is_refused(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MUSTER = replace(settings.MUSTER, bulk_limit=2)
    make_action()
    accept = executions.request_many

    def refuse_later(*arguments: Any, **values: Any) -> list[Execution]:
        if Execution.objects.exists():
            raise OperationalError("gone")
        return accept(*arguments, **values)

    monkeypatch.setattr(executions, "request_many", refuse_later)
    out = io.StringIO()
    with pytest.raises(CommandError, match="gone"):
        call_command("execution", "submit", "core.echo", "--count", "4", stdout=out)
    ids = Execution.objects.order_by("pk").values_list("pk", flat=True)
    assert out.getvalue().split() == list(map(str, ids))


def test_refusal_of_many_is_said_once() -> None:
    make_action(parameters_schema={"type": "object", "required": ["seconds"]})
    told = refused("submit", "core.echo", "--count", "200")
    assert told == "/parameters: expected the property 'seconds', found none"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["core.nothing"], "No action is called 'core.nothing'; see: manage.py pack list"),
        (["core.echo", "--worker", "w9"], "No worker has the name or id 'w9'"),
        (["core.echo", "--count", "2", "--idempotency-key", "k"], "leave out --count"),
        (["core.echo", "--param", "x"], "expected KEY=VALUE, found 'x'"),
        (["core.echo", "--parameters", "[1]"], "expected a JSON object, found a list"),
        (["core.echo", "--parameters", "@/no/such"], "/no/such: No such file"),
        (["core.echo", "--parameters", "{"], "argument --parameters: expected a JSON object: "),
        (["--queue", "bils"], "/queue: no queue is called 'bils'"),
        (["core.echo", "--priority", "101"], "expected -100 to 100, found '101'"),
        (["core.echo", "--timeout-seconds", "nan"], "expected seconds, 0.001 to"),
        (["core.echo", "--queue-ttl-ms", "0"], "expected 1 to"),
        (["core.echo", "--correlation-id", "a\0b"], "printable characters"),
    ],
)
def test_what_cannot_be_submitted_is_told_and_leaves_no_row(
    arguments: list[str], told: str
) -> None:
    make_action()
    assert told in refused("submit", *arguments)
    assert not Execution.objects.exists()


def test_wait_tells_how_each_ended_with_its_result_and_fails_unless_all_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_action()
    worker = make_worker()

    def end_next(seconds: float) -> None:
        row = Execution.objects.open().order_by("pk").first()
        assert row is not None
        now = row.created_at
        for event, values in (
            ("schedule", {"worker": worker.pk, "start_by": row.deadline_at}),
            ("claim", {"run_deadline_at": row.deadline_at}),
        ):
            row = transition(row, event, now=now, actor="t", **values)
        event, reason, result = next(ends)
        transition(row, event, now=now, actor="t", reason=reason, result=result)

    ends = iter(
        [
            ("complete", Reason.SUCCEEDED, {"said": "hi", "token": "t-1"}),
            ("fail", Reason.ACTION_FAILED, None),
        ]
    )
    monkeypatch.setattr("orchestrator.core.management.watching.time.sleep", end_next)
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("execution", "submit", "core.echo", "--count", "2", "--wait", stdout=out)
    assert ended.value.code == 1
    ids = [str(row.pk) for row in Execution.objects.order_by("pk")]
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    result = ["{", '  "said": "hi",', '  "token": "***"', "}"]
    assert lines == [
        *ids,
        f"completed  {ids[0]}  succeeded",
        *result,
        f"failed  {ids[1]}  action_failed",
    ]


# --- list ----------------------------------------------------------------------------------------


def listed(*arguments: str) -> list[str]:
    return [item["id"] for item in document("list", *arguments)["items"]]


def test_list_filters() -> None:
    other = make_action("core.other")
    w2 = make_worker("w2")
    rows = [
        make_execution(S.REQUESTED),
        make_execution(S.RUNNING, worker=w2),
        make_execution(S.COMPLETED, action=other),
        make_execution(S.ABANDONED),
    ]
    ids = [str(row.pk) for row in rows]
    assert listed() == ids[::-1]
    assert listed("--open") == [ids[1], ids[0]]
    assert listed("--status", "running", "--status", "completed") == [ids[2], ids[1]]
    assert listed("--action", "core.other") == [ids[2]]
    assert listed("--worker", "w2") == [ids[1]]
    assert listed("--reason", "worker_lost") == [ids[3]]
    assert listed("--reason", "worker_lost", "--open") == []


def test_list_goes_on_where_the_page_before_ended() -> None:
    ids = [str(make_execution().pk) for _ in range(5)][::-1]
    pages: list[list[str]] = []
    cursor: list[str] = []
    while True:
        page = document("list", "--limit", "2", *cursor)
        pages.append([item["id"] for item in page["items"]])
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert pages == [ids[:2], ids[2:4], ids[4:]]
    assert "is not" not in refused("list", "--cursor", "?!")
    assert "Not a cursor" in refused("list", "--cursor", "abcd")


def test_list_looks_at_a_bounded_number_of_rows_for_a_value_without_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    lost = make_execution(S.ABANDONED)
    for _ in range(2):
        make_execution(S.REQUESTED)
    said = run("list", "--reason", "worker_lost")
    assert "No execution matches." in said
    _, _, cursor = said.strip().partition("Looked at 2. Older ones: --cursor ")
    page = document("list", "--reason", "worker_lost", "--cursor", cursor)
    assert [(item["id"], item["worker"]) for item in page["items"]] == [(str(lost.pk), "w1")]
    assert page["next_cursor"] is None


def test_list_takes_a_search_beside_its_options() -> None:
    lost = make_execution(S.ABANDONED, correlation_id="c1")
    failed = make_execution(S.FAILED, correlation_id="c1")
    make_execution(S.RUNNING)
    assert listed("status:ended") == [str(failed.pk), str(lost.pk)]
    assert listed("c1 -status:failed") == [str(lost.pk)]
    assert listed("c1", "--status", "failed") == [str(failed.pk)]
    assert run("list", "--", "-status:ended correlation:c1") == "No execution matches.\n"
    assert run("list", "waited:>9d") == "No execution matches.\n"


def test_mistake_of_a_search_is_marked_below_its_place() -> None:
    make_execution(S.FAILED)
    with pytest.raises(CommandError) as error:
        run("list", "status:faild ran:>5s")
    assert str(error.value) == (
        "no status is called 'faild', did you mean 'failed'?\n"
        "  status:faild ran:>5s\n"
        "         ^^^^^"
    )


def test_search_that_scans_says_what_it_looked_at_and_how_to_go_on() -> None:
    early = NOW - timedelta(days=3)
    make_execution(S.FAILED, pk=uuid7_floor(early), created_at=early)
    lost = make_execution(S.ABANDONED, pk=uuid7_floor(NOW), created_at=NOW)
    said = run("list", "status:failed")
    assert said.startswith(
        "No execution matches.\nLooked at 24 h, back to 2026-02-28 12:00:00 UTC. Older ones: --"
    )
    assert len(listed("status:failed", "--cursor", said.split()[-1])) == 1
    found = document("list", "status:abandoned")
    assert [item["id"] for item in found["items"]] == [str(lost.pk)]
    assert found["next_cursor"]


def test_list_says_when_each_was_created_how_long_it_waited_and_ran_and_why_it_failed() -> None:
    end = NOW + timedelta(seconds=40)
    row = make_execution(
        S.FAILED, started_at=NOW + timedelta(seconds=100), ended_at=NOW + timedelta(seconds=140),
        reason="action_failed", result={"message": "could not\nopen /dev/printer7"},
    )  # fmt: skip
    make_execution(S.COMPLETED, result={"message": "all is well"}, ended_at=end)
    table = run("list")
    (line,) = (line for line in table.splitlines() if line.startswith(str(row.pk)))
    assert line.split("  ")[1] == "03-01 11:59:55"
    assert "1 min 45 s  40 s  action_failed: could not open /dev/printer7" in line
    assert "all is well" not in table


def test_list_says_nothing_of_an_earlier_attempt_while_the_next_one_runs() -> None:
    lost: dict[str, Any] = {"reason": "worker_lost", "result": {"message": "its worker stopped"}}
    for status in (S.REQUESTED, S.SCHEDULED, S.RUNNING):
        make_execution(status, attempt=2, **lost)
    assert "its worker stopped" not in run("list")
    make_execution(S.REQUESTED, attempt=1, wait_reason="no_free_worker", **lost)
    table = run("list")
    assert table.count("no_free_worker") == 1
    assert "its worker stopped" not in table


def test_listed_messages_are_without_secrets_and_asked_for_at_once(
    django_assert_max_num_queries: Any,
) -> None:
    for n in range(5):
        make_execution(S.FAILED, result={"message": {"no": n, "password": "hunter2"}})
    with django_assert_max_num_queries(6):
        table = run("list")
    assert "'no': 4" in table
    assert "hunter2" not in table


def test_long_message_is_cut_off_in_the_list() -> None:
    make_execution(S.FAILED, result={"message": "y" * 3_000})
    assert max(map(len, run("list").splitlines())) < 400


def test_nothing_from_outside_is_markup() -> None:
    action = make_action("core." + "a" * 120)
    make_execution(S.SCHEDULING, action=action, wait_reason="[red]no[/red] \x1b[31m" + "x" * 150)
    execution = make_execution(
        S.FAILED, action=action, parameters={"m": "[bold]\x1b[31m"}, result={"error": "y" * 300}
    )
    table, page = run("list"), run("show", str(execution.pk))
    assert "\x1b" not in table + page
    assert "[bold]" in page


def test_times_are_iso_8601_in_utc() -> None:
    make_execution(S.COMPLETED)
    (item,) = document("list")["items"]
    assert item["ended_at"] == "2026-03-01T12:00:00Z"
    assert datetime.fromisoformat(item["created_at"]) == NOW - timedelta(seconds=5)


def test_empty_list_says_what_to_do() -> None:
    assert "manage.py execution submit" in run("list")
    assert document("list") == {"items": [], "next_cursor": None}


# --- show ----------------------------------------------------------------------------------------


def test_show_tells_where_it_is_who_moves_it_on_and_what_happened() -> None:
    execution = make_execution(S.SCHEDULED, now=clock.now())
    make_dlq_entry(
        about=execution,
        attempt=1,
        detail="was not taken",
        original_queue="worker.1.executions",
    )
    executions.cancel(execution_id=execution.pk, actor="ada", now=clock.now())
    page = run("show", str(execution.pk))
    for text in ("cancelled", "nobody: terminal", "ada", "worker.1.executions", "no longer acts"):
        assert text in page
    found = document("show", str(execution.pk))
    assert [event["to_status"] for event in found["history"]] == ["cancelled"]
    assert found["dead_letters"][0]["dlq_reason"] == "queue_ttl_expired"
    assert found["worker"] == "w1"


def test_beginning_of_an_id_is_enough_if_it_is_unique() -> None:
    one = make_execution(id="0189aaaa-0000-7000-8000-000000000001")
    make_execution(id="0189aabb-0000-7000-8000-000000000002")
    assert document("show", "0189aaa")["id"] == str(one.pk)
    assert document("show", "0189AAAA-0000")["id"] == str(one.pk)
    assert document("show", "0189aa…0001")["id"] == str(one.pk)
    both = "0189aaaa-0000-7000-8000-000000000001, 0189aabb-0000-7000-8000-000000000002"
    assert refused("show", "0189aa").endswith(f"begins with 0189aa: {both}")
    assert "No execution has an id that begins with ffff" in refused("show", "ffff")
    assert "expected a UUID" in refused("show", "hello")


# --- watch and cancel ----------------------------------------------------------------------------


def test_watch_prints_each_transition_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = make_execution(S.RUNNING)
    steps = iter([("request_cancel", None), ("confirm_cancel", Reason.CANCELLED_RUNNING)])

    def step(seconds: float) -> None:
        event, reason = next(steps)
        transition(Execution.objects.get(), event, now=NOW, actor="w1", reason=reason)

    monkeypatch.setattr("orchestrator.core.management.watching.time.sleep", step)
    lines = run("watch", str(execution.pk)).splitlines()
    assert [line.partition(str(execution.pk))[2].strip() for line in lines] == [
        "running -> canceling  w1",
        "canceling -> cancelled  w1  cancelled_running",
    ]


def test_watch_of_all_prints_what_happens_from_now_on_and_stops_at_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = make_execution(S.RUNNING)
    transition(old, "complete", now=NOW, actor="w1", reason=Reason.SUCCEEDED)
    new = make_execution(S.RUNNING)
    calls = []

    def step(seconds: float) -> None:
        calls.append(seconds)
        if len(calls) > 2:
            raise KeyboardInterrupt
        if len(calls) == 1:
            transition(new, "complete", now=NOW, actor="w1", reason=Reason.SUCCEEDED)

    monkeypatch.setattr("orchestrator.core.management.watching.time.sleep", step)
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("execution", "watch", "--all", stdout=out, stderr=io.StringIO())
    assert ended.value.code == output.INTERRUPTED
    assert len(out.getvalue().splitlines()) == 1
    assert str(new.pk) in out.getvalue()


def test_cancel_keeps_its_reason() -> None:
    waiting = make_execution(S.REQUESTED)
    run("cancel", str(waiting.pk), "--reason", "ordered twice")
    assert reread(waiting).cancel_reason == "ordered twice"
    assert "ordered twice" in run("show", str(waiting.pk))


def test_cancel_says_what_became_of_it() -> None:
    waiting, running = make_execution(), make_execution(S.RUNNING)
    assert run("cancel", str(waiting.pk)) == f"{waiting.pk} is cancelled\n"
    assert "is being stopped by its worker" in run("cancel", str(running.pk))
    assert "is over: cancelled" in refused("cancel", str(waiting.pk))


# --- what is expected to go wrong ----------------------------------------------------------------


def test_unreachable_database_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> datetime:
        raise OperationalError("connection refused\n\tIs the server running?")

    monkeypatch.setattr(clock, "now", fail)
    make_execution()
    assert refused("list").startswith("Database sqlite ")
    assert refused("list").endswith(": connection refused")


def test_broker_that_is_away_does_not_keep_an_execution_from_being_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "flush", lambda: False)
    make_action()
    assert run("submit", "core.echo")


# --- logs ----------------------------------------------------------------------------------------


def printed_by(execution: Execution, text: str, offset: int = 0, **where: Any) -> None:
    known: dict[str, Any] = {"attempt": execution.attempt, "stream": "stdout"} | where
    piece = Piece(execution_id=execution.pk, offset=offset, content=text.encode(), **known)
    live_output.write([piece], now=NOW)


def test_logs_print_what_the_execution_printed() -> None:
    execution = make_execution(S.RUNNING)
    printed_by(execution, "one\n")
    printed_by(execution, "two\n", offset=4)
    assert run("logs", str(execution.pk)) == "one\ntwo\n"
    assert run("logs", str(execution.pk), "--stream", "stderr") == ""


def test_logs_say_what_is_missing_and_name_attempts() -> None:
    execution = make_execution(S.COMPLETED, attempt=2)
    printed_by(execution, "first\n", offset=2_000, attempt=1)
    printed_by(execution, "second\n", attempt=2)
    notes = io.StringIO()
    out = io.StringIO()
    call_command("execution", "logs", str(execution.pk), "--attempt", "1", stdout=out, stderr=notes)
    assert (out.getvalue(), notes.getvalue()) == (
        "first\n",
        "--- 2,000 bytes of stdout were not kept ---\n",
    )
    assert run("logs", str(execution.pk)) == "second\n"


def test_logs_as_json_are_a_document_a_line() -> None:
    execution = make_execution(S.RUNNING)
    printed_by(execution, "one\n")
    printed_by(execution, "bad\n", stream="stderr")
    lines = [json.loads(line) for line in run("logs", str(execution.pk), "--json").splitlines()]
    assert [(line["stream"], line["text"], line["attempt"]) for line in lines] == [
        ("stdout", "one\n", 1),
        ("stderr", "bad\n", 1),
    ]


def test_following_ends_with_the_outcome() -> None:
    run("logs", str(make_execution(S.COMPLETED).pk), "--follow")
    for status in (S.FAILED, S.ABANDONED):
        with pytest.raises(SystemExit) as end:
            run("logs", str(make_execution(status).pk), "--follow")
        assert end.value.code == 1
