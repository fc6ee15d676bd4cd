"""What the process of an action calls: plain functions, decorated ones, Celery tasks."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import celery
import pytest
from celery.exceptions import Reject, Retry, SoftTimeLimitExceeded
from pydantic import BaseModel, Field

from muster_client import TaskRejected, TryAgain, action, calling
from muster_client.calling import call


class Line(BaseModel):
    sku: str
    price: Decimal


@dataclasses.dataclass
class Total:
    at: date
    sum: Decimal


@action
def total(*, lines: list[Line], at: date, factor: Annotated[int, Field(ge=1)] = 2) -> Total:
    return Total(at, sum((line.price for line in lines), Decimal(0)) * factor)


class TestFunctions:
    def test_plain_function_gets_its_parameters_as_they_are(self):
        assert call(lambda **values: values, {"at": "2026-01-02"}) == {"at": "2026-01-02"}

    def test_decorated_function_gets_what_its_hints_say_and_returns_json(self):
        lines = [{"sku": "a", "price": "1.50"}]
        assert call(total, {"lines": lines, "at": "2026-01-02"}) == {
            "at": "2026-01-02",
            "sum": "3.00",
        }

    def test_decorated_function_is_called_as_any_other_in_a_test_of_its_own(self):
        assert total(lines=[], at=date(2026, 1, 2)).sum == 0


# --- tasks of Celery ------------------------------------------------------------------------------

app = celery.Celery("tests", set_as_current=False)


@celery.shared_task
def on(*, day: date) -> str:
    return day.strftime("%A")


@app.task(bind=True, default_retry_delay=7)
def fetch(self: Any, how: str) -> Any:
    if how == "retry":
        raise self.retry()
    if how == "countdown":
        try:
            raise ConnectionError("no line")
        except ConnectionError as error:
            raise self.retry(exc=error, countdown=30) from error
    if how == "eta":
        raise self.retry(eta=datetime.now(UTC) + timedelta(seconds=60))
    if how == "raise":
        raise Retry("later", when=datetime.now(UTC) + timedelta(seconds=9))
    if how in ("requeue", "reject"):
        raise Reject("the press is cold", requeue=how == "requeue")
    if how == "other":
        return self.app
    request = self.request
    return [self.name, request.id, request.retries, request.kwargs, self.max_retries]


@app.task(autoretry_for=(OSError,), dont_autoretry_for=(PermissionError,), retry_backoff=True)
def read(error: str) -> None:
    raise {"again": ConnectionError, "never": PermissionError, "other": ValueError}[error]("why")


@app.task(soft_time_limit=1)
def slow() -> str:
    try:
        time.sleep(10)
    except SoftTimeLimitExceeded:
        return "tidied up"
    return "ended"


@app.task(pydantic=True)
def weigh(line: Line) -> Line:
    return line


class TestTasks:
    def test_task_gets_what_its_hints_say(self):
        assert call(on, {"day": "2026-01-02"}) == "Friday"

    def test_bound_task_knows_its_execution_and_its_retries(self, monkeypatch):
        monkeypatch.setenv("MSTR_EXECUTION_ID", "0198")
        monkeypatch.setenv("MSTR_RETRIES", "2")
        expected = ["tests.client.test_calling.fetch", "0198", 2, {"how": "tell"}, 3]
        assert call(fetch, {"how": "tell"}) == expected

    @pytest.mark.parametrize(
        ("how", "seconds"), [("retry", 7), ("countdown", 30), ("eta", 60), ("raise", 9)]
    )
    def test_retry_asks_muster_for_another_attempt(self, how, seconds):
        with pytest.raises(TryAgain) as raised:
            call(fetch, {"how": how})
        asked = calling.asked(raised.value)
        assert asked["try_again"]["after_seconds"] == pytest.approx(seconds, abs=2)

    def test_what_is_described_of_a_retry_is_its_cause(self):
        with pytest.raises(TryAgain) as raised:
            call(fetch, {"how": "countdown"})
        assert isinstance(calling.cause(raised.value), ConnectionError)

    def test_what_self_lacks_is_said_with_what_it_has(self):
        with pytest.raises(AttributeError, match=r"self\.app: expected one of name, request"):
            call(fetch, {"how": "other"})

    @pytest.mark.parametrize(
        ("error", "raised"),
        [("again", TryAgain), ("never", PermissionError), ("other", ValueError)],
    )
    def test_autoretry_is_for_the_exceptions_that_it_names(self, error, raised):
        with pytest.raises(raised) as caught:
            call(read, {"error": error})
        if raised is TryAgain:
            assert calling.asked(caught.value) == {"try_again": {"after_seconds": None}}

    def test_reject_with_requeue_defers_and_without_it_fails(self):
        with pytest.raises(TaskRejected, match="the press is cold") as deferred:
            call(fetch, {"how": "requeue"})
        assert calling.asked(deferred.value) == {"task_rejected": {"after_seconds": None}}
        with pytest.raises(Reject) as failed:
            call(fetch, {"how": "reject"})
        assert calling.asked(failed.value) == {}

    def test_task_can_tidy_up_at_its_soft_time_limit(self):
        started = time.monotonic()
        assert call(slow, {}) == "tidied up"
        assert time.monotonic() - started < 5

    def test_task_with_celerys_own_pydantic_gets_its_model(self):
        assert call(weigh, {"line": {"sku": "a", "price": "2"}}) == {"sku": "a", "price": "2"}
