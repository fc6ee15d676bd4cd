"""No escape sequence and no markup of what is stored reaches a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from orchestrator.core import clock
from orchestrator.core.models import ExecutionEvent, WorkerEvent
from tests import commands
from tests.factories import (
    make_action,
    make_dlq_entry,
    make_execution,
    make_step,
    make_task,
    make_template,
    make_worker,
)

pytestmark = pytest.mark.django_db

EVIL = "\x1b[31mred\x1b]0;title\x07\x9b2J\x08[bold]x[/]\r"
CONTROL = {"\x1b", "\x07", "\x9b", "\x08", "\r"}


@pytest.fixture
def rows() -> dict[str, Any]:
    """A row of each kind, whose texts are all hostile."""
    now = clock.now()
    action = make_action(description=EVIL, worker_selector={EVIL: EVIL}, runtime=EVIL[:20])
    action.pack.description, action.pack.version = EVIL, EVIL[:30]
    action.pack.save()
    worker = make_worker(
        f"w{EVIL}", now=now, status_reason=EVIL, cordoned=True, cordon_reason=EVIL, host=EVIL,
        labels={EVIL: EVIL}, failed_checks={EVIL: EVIL}, missing_code={EVIL: EVIL}, version=EVIL,
        runtimes=[EVIL],
    )  # fmt: skip
    WorkerEvent.objects.create(
        worker=worker, kind="cordoned", incarnation=1, actor=EVIL, reason=EVIL, at=now
    )
    execution = make_execution(
        "failed", action=action, worker=worker, now=now, wait_reason=EVIL, requested_by=EVIL,
        reason=EVIL[:30], correlation_id=EVIL, idempotency_key=EVIL, parameters={EVIL: EVIL},
        result={"message": EVIL, EVIL: [EVIL]}, worker_selector={EVIL: EVIL},
    )  # fmt: skip
    ExecutionEvent.objects.create(
        execution=execution, event="finish", from_status="running", to_status="failed", attempt=1,
        actor=EVIL, reason=EVIL[:30], at=now,
    )  # fmt: skip
    entry = make_dlq_entry(
        about=execution, now=now, detail=EVIL, opened_by=EVIL, subject_name=EVIL,
        snapshot={EVIL: EVIL},
        notes=[{"at": now.isoformat(), "by": EVIL, "text": EVIL}], metadata={EVIL: EVIL},
        original_queue=EVIL, original_exchange=EVIL, x_death=[], headers={EVIL: EVIL},
    )  # fmt: skip
    template = make_template(description=EVIL)
    task = make_task(
        "error", template=template, now=now, reason=EVIL, requested_by=EVIL, initiator=EVIL,
        tags=[EVIL], source_system=EVIL, correlation_id=EVIL, context={EVIL: EVIL},
    )  # fmt: skip
    make_step("error", task=task, now=now, error={"message": EVIL}, result={EVIL: EVIL})
    late = make_task("pending", template=template, now=now - timedelta(days=9), reason=EVIL)
    return {"execution": execution, "worker": worker, "entry": entry, "task": task, "late": late}


def test_no_table_shows_an_escape_sequence(rows: dict[str, Any]) -> None:
    execution, task = str(rows["execution"].pk), str(rows["task"].pk)
    entry, worker = str(rows["entry"].pk), rows["worker"].name
    calls = [
        ("execution", "list"), ("execution", "show", execution),
        ("workers", "list"), ("workers", "show", worker), ("workers", "events", worker),
        ("dlq", "list"), ("dlq", "show", entry), ("dlq", "queue"), ("dlq", "stats"),
        ("dlq", "stats", "--by", "subject"), ("dlq", "stats", "--by", "queue"),
        ("task", "list"), ("task", "show", task), ("task", "audit", task),
        ("task", "step", task, "wash"), ("task", "staleness"), ("task", "graph", task),
        ("template", "list"), ("template", "show", "tests/tidy/1.0.0"),
        ("pack", "list"), ("token", "list"), ("advise",),
    ]  # fmt: skip
    shown = {}
    for call in calls:
        try:
            shown[call] = commands.printed(*call)
        except (CommandError, SystemExit) as refused:
            shown[call] = str(refused)
    found = {call: sorted(CONTROL & set(text)) for call, text in shown.items()}
    assert not {call: marks for call, marks in found.items() if marks}
    assert sum(r"\x1b[31mred" in text.replace("\n", "") for text in shown.values()) >= 8


@pytest.mark.parametrize(
    "call",
    [
        ("workers", "show", EVIL),
        ("dlq", "show", EVIL),
        ("template", "show", f"a/b/{EVIL}"),
        ("template", "install", f"/nowhere/{EVIL}"),
        ("pack", "install", f"/nowhere/{EVIL}"),
        ("execution", "submit", EVIL),
    ],
)
def test_no_error_shows_an_escape_sequence(
    call: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((CommandError, SystemExit)) as refused:
        commands.printed(*call)
    text = str(refused.value) + capsys.readouterr().err
    assert not CONTROL & set(text)
