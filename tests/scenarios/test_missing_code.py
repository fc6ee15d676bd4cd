"""A worker whose host lacks a pack: its work goes elsewhere, and comes when the pack has come."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import Installation, Service

ACTIONS = {
    "call": "runtime: python\nentry_point: visiting.visits:visit",
    "start": "runtime: python\nentry_point: visiting.visits:visit\noptions: {process: true}",
    "script": "runtime: shell\nentry_point: [./visit.sh]",
    "patient": "runtime: python\nentry_point: visiting.visits:visit\non_no_worker: wait",
}
"""Each way in which an action depends on its pack's folder."""


def make_pack(muster: Installation) -> Path:
    """A pack whose folder nothing but its own path leads to."""
    folder = muster.directory / "packs" / "visiting"
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text('name: visiting\nversion: "1.0"\n')
    (folder / "visits.py").write_text("def visit():\n    return {}\n")
    script = folder / "visit.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    for name, lines in ACTIONS.items():
        (folder / "actions" / f"{name}.yaml").write_text(f"name: {name}\n{lines}\n")
    return folder


def give(folder: Path, worker: Service) -> None:
    """Bring the pack to the host of this worker, at once."""
    target = worker.view_of(folder)
    shutil.copytree(folder, target.with_name("on-its-way"))
    os.rename(target.with_name("on-its-way"), target)


def submit_each(muster: Installation, number: int, **more: Any) -> list[UUID]:
    names = ["call", "start", "script"]
    return [muster.submit(f"visiting.{names[n % 3]}", **more) for n in range(number)]


def wait_until_known(muster: Installation, name: str, missing: dict[str, str]) -> None:
    muster.wait_for(
        lambda: muster.worker(name).missing_code == missing,
        f"it is not known that {name} lacks {missing or 'nothing'}",
    )


def run_on(muster: Installation, name: str) -> None:
    """Ask for actions of the pack until this worker has completed one that could go elsewhere."""
    worker_id = muster.worker(name).id

    def look() -> bool:
        rows = muster.wait_for_ends(submit_each(muster, 6))
        assert {row.status for row in rows} == {"completed"}
        return any(row.worker_id == worker_id for row in rows)

    muster.wait_for(look, f"{name} gets no work of the pack")


@pytest.mark.slow
def test_what_a_worker_cannot_load_runs_elsewhere_at_once_and_uncounted(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    folder = make_pack(muster)
    muster.start_executor()
    fit = muster.start_worker("fit")
    without = muster.start_worker_without(folder.parent, "without")
    muster.ready()
    # after both have looked at what was installed: it is found out when it is to be run
    muster.command("pack", "install", "--linked", str(folder))

    ids = [id for most in (1, 3) for id in submit_each(muster, 15, retry={"max_attempts": most})]
    rows = muster.wait_for_ends(ids)

    fit_id = muster.worker("fit").id
    assert {(row.status, row.reason) for row in rows} == {("completed", "succeeded")}
    assert {(row.worker_id, row.retry_count) for row in rows} == {(fit_id, 0)}
    moved = [row for row in rows if row.attempt > 1]
    assert moved, "the worker without the pack was given nothing of it"
    for row in moved:
        events = [event for event in muster.events(row.id) if event.event == "give_back"]
        assert {event.reason for event in events} <= {"pack_unavailable", "given_back"}
    measured(
        "longest way of what one worker could not load",
        max((row.ended_at - row.created_at).total_seconds() for row in moved),
    )
    assert max(row.attempt for row in moved) <= 3, "it went to and fro"
    wait_until_known(muster, "without", {"visiting": f"no such folder: {folder}"})

    life = muster.worker("without").incarnation
    give(folder, without)
    began_at = time.monotonic()
    wait_until_known(muster, "without", {})
    measured("folder there to fit for it again", time.monotonic() - began_at)
    run_on(muster, "without")
    assert muster.worker("without").incarnation == life
    assert fit.process.poll() is None
    muster.check_accounts()


@pytest.mark.slow
def test_worker_that_starts_without_a_pack_gets_nothing_of_it_until_it_has_it(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    folder = make_pack(muster)
    muster.command("pack", "install", "--linked", str(folder))
    muster.start_executor()
    muster.start_worker("fit")
    without = muster.start_worker_without(folder.parent, "without")
    muster.ready()
    why = f"no such folder: {folder}"
    assert muster.worker("without").missing_code == {"visiting": why}

    rows = muster.wait_for_ends(submit_each(muster, 30))
    assert {row.status for row in rows} == {"completed"}
    assert {(row.worker_id, row.attempt) for row in rows} == {(muster.worker("fit").id, 1)}
    others = muster.wait_for_ends([muster.submit("core.noop") for _ in range(10)])
    assert muster.worker("without").id in {row.worker_id for row in others}

    pinned = muster.submit("visiting.call", worker_id=muster.worker("without").id)
    refused = muster.wait_for_end(pinned)
    assert (refused.status, refused.reason) == ("failed", "no_worker_available")
    assert refused.result["message"] == (
        f"no workers available: the one asked for lacks the pack visiting ({why})"
    )
    assert json.loads(muster.command("workers", "show", "without", "--json"))["missing_code"] == {
        "visiting": why
    }
    assert f"without lacks the pack visiting: {why}" in muster.command("advise")

    give(folder, without)
    wait_until_known(muster, "without", {})
    run_on(muster, "without")
    assert muster.changes_of("without") == ["registered", "lacks_code", "has_code"]
    muster.check_accounts()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_where_no_worker_has_the_pack_its_actions_fail_or_wait_as_they_say(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    folder = make_pack(muster)
    muster.command("pack", "install", "--linked", str(folder))
    away = folder.with_name("away")
    folder.rename(away)
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    expected = f"no workers available: lacks the pack visiting (no such folder: {folder}): w1"
    time.sleep(1.5)  # what comes together with a worker's going may still wait for it

    for id in submit_each(muster, 3):
        row = muster.wait_for_end(id)
        assert (row.status, row.reason) == ("failed", "no_worker_available")
        assert row.result["message"] == expected
    patient = muster.submit("visiting.patient")
    assert muster.wait_for_status(patient, "scheduling").wait_reason == expected[:200]

    away.rename(folder)
    row = muster.wait_for_end(patient)
    assert (row.status, row.attempt) == ("completed", 1)
    muster.check_accounts()
