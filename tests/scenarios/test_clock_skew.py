"""Workers and API processes whose clocks are an hour ahead, and an hour behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from tests.scenarios.installation import QUICK, Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", ["servers"], indirect=True),
]

SKEWS = {"ahead": "+1h", "behind": "-1h"}
LIBRARIES = ("usr/lib/*/faketime", "usr/lib/faketime", "usr/local/lib/faketime")
LONGEST_SECONDS = 600
"""No time in the database may be further away than this: an hour would be seen."""


def _faketime() -> Path:
    found = [path for place in LIBRARIES for path in Path("/").glob(f"{place}/libfaketimeMT.so.1")]
    if found:
        return found[0]
    pytest.skip("libfaketime is not installed (deploy/install-test-servers.sh installs it)")


def _skewed(skew: str) -> dict[str, str]:
    """Variables of a process whose wall clock is off; what counts seconds is as it should be."""
    return {
        "LD_PRELOAD": str(_faketime()),
        "FAKETIME": skew,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # what its repair of waits by CLOCK_MONOTONIC adds, it adds to those of the real one, too:
        # the interpreter's own lock is then waited for by an hour's difference
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "PYTHONPATH": str(Path(__file__).parent / "skewed"),
    }


def test_skewed_clocks_of_workers_and_api_decide_nothing(
    install: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    muster: Installation = install()
    url = muster.environment["DATABASE_URL"]
    prepared = _times(url)  # a database that all scenarios copy, and that may be old by now
    muster.start_executor()
    apis = {}
    for name, skew in SKEWS.items():
        muster.start_worker(name, concurrency=4, **_skewed(skew))
        apis[name] = f"{muster.serve(**_skewed(skew))}/api/v1"
    token = muster.token("skew")
    client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    request.addfinalizer(client.close)
    muster.ready()
    _assert_skewed(apis)

    began = time.time()
    wanted: dict[str, set[str]] = {}
    """execution -> the reasons with which it may end"""
    for api, base in apis.items():
        for worker in SKEWS:

            def submit(label: str, *ends: str, action: str = "note", **more: Any) -> str:
                parameters = {"journal": str(muster.journal.path), "label": label, "seconds": 0}
                parameters |= more.pop("parameters", {})
                asked = {
                    "action_ref": f"scenario.{action}",
                    "parameters": parameters,
                    "worker_id": muster.worker(worker).id,  # noqa: B023 - called at once
                    **more,
                }
                answer = client.post(f"{base}/executions", json=asked)  # noqa: B023
                assert answer.status_code == 201, answer.text
                deadline_at = datetime.fromisoformat(answer.json()["deadline_at"]).timestamp()
                seconds = more.get("deadline_seconds", QUICK["deadline_seconds"])
                assert abs(deadline_at - time.time() - seconds) < 30, "told by a skewed clock"
                wanted[answer.json()["id"]] = set(ends)
                return str(answer.json()["id"])

            place = f"{api} {worker}"
            long = {"seconds": 300}
            submit(f"{place} works", "succeeded")
            shell = {"children": 0, "gate": ""}
            submit(f"{place} shell", "succeeded", action="note_shell", parameters=shell)
            submit(f"{place} overtime", "run_timeout", timeout_seconds=1, parameters=long)
            # a busy machine may not have started it by then
            due = ("run_timeout", "deadline_passed")
            submit(f"{place} due", *due, deadline_seconds=4, parameters=long)
            cancelled = submit(f"{place} cancelled", "cancelled_running", parameters=long)
            muster.wait_for_start(f"{place} cancelled")
            assert client.post(f"{base}/executions/{cancelled}/cancel").status_code == 202

    rows = {str(row.id): row for row in muster.wait_for_ends([UUID(id) for id in wanted])}
    assert all(rows[id].reason in reasons for id, reasons in wanted.items())
    assert {muster.worker(name).incarnation for name in SKEWS} == {1}, "one was believed to be dead"
    muster.check_accounts()
    for table, column, at in _times(url) - prepared:
        assert abs(at - began) < LONGEST_SECONDS, (table, column)


def _assert_skewed(apis: dict[str, str]) -> None:
    """Their clocks really are off: they say so themselves in each answer."""
    for name, url in apis.items():
        told = httpx.get(f"{url}/health/live", timeout=60).headers["date"]
        at = datetime.strptime(told, "%a, %d %b %Y %H:%M:%S %Z").timestamp()  # noqa: DTZ007 - UTC
        off = at - time.time()
        assert (off > 3_000) if name == "ahead" else (off < -3_000), off


def _times(url: str) -> set[tuple[str, str, float]]:
    """Every time in the database, with its table and column."""
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = "
            "'public' AND table_name LIKE 'orchestrator%' AND data_type LIKE 'timestamp%'"
        ).fetchall()
        return {
            (table, column, at.timestamp())
            for table, column in columns
            for (at,) in connection.execute(f'SELECT "{column}" FROM "{table}"').fetchall()  # noqa: S608
            if at is not None
        }
