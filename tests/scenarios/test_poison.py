"""An action that kills each worker that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Installation


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["servers"], indirect=True)  # executors decide it by the rows
def test_poison_takes_no_other_work_with_it_once_it_is_suspect(install: Callable[..., Any]) -> None:
    muster: Installation = install(**SOON_LOST)
    muster.start_executor()
    workers = [muster.start_worker(name, concurrency=4) for name in ("w1", "w2", "w3")]
    muster.ready()
    journal = str(muster.journal.path)
    poison = muster.submit("scenario.kill_worker", {"journal": journal, "label": "poison"})
    muster.wait_for(lambda: muster.execution(poison).lost_workers == 2, "two workers were not lost")
    # what may not be repeated: each that runs beside the poison would be abandoned
    notes = [{"label": f"n {number}", "seconds": 0.5} for number in range(8)]
    others = muster.submit_notes(*notes)

    rows = muster.wait_for_ends([poison], within_seconds=90)

    assert [(row.status, row.reason, row.attempt) for row in rows] == [
        ("abandoned", "worker_lost", 3)
    ]
    assert [worker.exit_status() for worker in workers] == [-9, -9, -9]
    muster.start_worker("w4")
    assert {row.status for row in muster.wait_for_ends(others)} == {"completed"}
    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.dlq_reason) == (poison, "poison")
    third = muster.journal.starts("poison")[-1].at
    beside = [note.label for note in muster.journal.starts() if note.label.startswith("n ")]
    running = [
        label
        for label in beside
        if muster.journal.starts(label)[0].at < third
        and not any(end.at <= third for end in muster.journal.ends(label))
    ]
    assert running == []
    muster.check_accounts()
