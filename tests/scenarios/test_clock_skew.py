"""Workers and API processes whose clocks are an hour ahead, and an hour behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests import servers
from tests.scenarios.installation import TERMINAL, Installation

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
    muster.start_executor()
    apis = {}
    for name, skew in SKEWS.items():
        muster.start_worker(name, concurrency=4, **_skewed(skew))
        port = servers.free_port()
        muster.start_api(port, **_skewed(skew))
        apis[name] = f"http://127.0.0.1:{port}/api/v1"
    token = muster.command("token", "create", "skew").strip()
    client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10)
    request.addfinalizer(client.close)
    muster.wait_for(lambda: all(_answers(url) for url in apis.values()), "no API answers")
    muster.wait_for(
        lambda: all(muster.worker(name).status == "active" for name in SKEWS), "no workers"
    )
    _assert_skewed(apis)

    began = time.time()
    wanted: dict[str, str] = {}
    """execution -> how it has to end"""
    for api, url in apis.items():
        for worker in SKEWS:

            def submit(label: str, ends: str, action: str = "note", **more: Any) -> str:
                parameters = {"journal": str(muster.journal.path), "label": label, "seconds": 0}
                parameters |= more.pop("parameters", {})
                asked = {
                    "action_ref": f"scenario.{action}",
                    "parameters": parameters,
                    "worker_id": muster.worker(worker).id,  # noqa: B023 - called at once
                    **more,
                }
                answer = client.post(f"{url}/executions", json=asked)  # noqa: B023
                assert answer.status_code == 201, answer.text
                deadline_at = datetime.fromisoformat(answer.json()["deadline_at"]).timestamp()
                seconds = more.get("deadline_seconds", 60)
                assert abs(deadline_at - time.time() - seconds) < 30, "told by a skewed clock"
                wanted[answer.json()["id"]] = ends
                return str(answer.json()["id"])

            place = f"{api} {worker}"
            submit(f"{place} works", "completed")
            submit(f"{place} shell", "completed", action="note_shell", parameters={"children": 0})
            submit(f"{place} overtime", "timeout", timeout_seconds=1, parameters={"seconds": 20})
            submit(f"{place} due", "timeout", deadline_seconds=2, parameters={"seconds": 20})
            cancelled = submit(f"{place} cancelled", "cancelled", parameters={"seconds": 20})
            muster.wait_for_start(f"{place} cancelled")
            assert client.post(f"{url}/executions/{cancelled}/cancel").status_code == 202

    rows = {str(id): row for id, row in muster.executions().items()}
    muster.wait_for(
        lambda: all(row.status in TERMINAL for row in muster.executions().values()), "not over"
    )
    rows = {str(id): row for id, row in muster.executions().items()}
    assert {id: rows[id].status for id in wanted} == wanted
    assert {muster.worker(name).incarnation for name in SKEWS} == {1}, "one was believed to be dead"
    muster.check_accounts()
    _assert_no_time_is_skewed(muster.environment["DATABASE_URL"], began)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def _assert_skewed(apis: dict[str, str]) -> None:
    """Their clocks really are off: they say so themselves in each answer."""
    for name, url in apis.items():
        told = httpx.get(f"{url}/health/live").headers["date"]
        at = datetime.strptime(told, "%a, %d %b %Y %H:%M:%S %Z").timestamp()  # noqa: DTZ007 - UTC
        off = at - time.time()
        assert (off > 3_000) if name == "ahead" else (off < -3_000), off


def _assert_no_time_is_skewed(url: str, began: float) -> None:
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = "
            "'public' AND table_name LIKE 'orchestrator%' AND data_type LIKE 'timestamp%'"
        ).fetchall()
        for table, column in columns:
            times = connection.execute(f'SELECT "{column}" FROM "{table}"').fetchall()  # noqa: S608
            for (at,) in times:
                assert at is None or abs(at.timestamp() - began) < LONGEST_SECONDS, (table, column)
