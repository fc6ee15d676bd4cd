"""The clients against the real API: what they ask for, once, through a network with faults."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

import muster_client
from muster_client import Patience, wire
from orchestrator.core import clock, executions
from orchestrator.core.models import Execution
from orchestrator.core.state_machine import transition
from tests import principals
from tests.client.network import Network, answered, lost, refused
from tests.factories import make_worker

pytestmark = pytest.mark.django_db

BUSY = {"type": "urn:muster:problem:busy", "title": "Busy", "status": 503, "detail": "later"}


def advance(network: Network, *steps: Any) -> None:
    """Have one of these steps happen before each answer."""
    left = list(steps)
    network.before_each_answer = lambda: left.pop(0)() if left else None


def schedule() -> None:
    row, now = Execution.objects.get(), clock.now()
    worker = make_worker(now=now)
    transition(row, "schedule", now=now, actor="executor", worker=worker, start_by=now)


def claim() -> None:
    row, now = Execution.objects.get(), clock.now()
    times = {"started_at": now, "run_deadline_at": now}
    transition(row, "claim", now=now, actor="w1", reason="", worker_incarnation=1, **times)


def complete() -> None:
    row = Execution.objects.get()
    transition(row, "complete", now=clock.now(), actor="w1", reason="succeeded", result={"sum": 3})


def fail() -> None:
    row = Execution.objects.get()
    result = {"error": "The action failed", "message": "no paper", "failed_by": "action"}
    transition(row, "fail", now=clock.now(), actor="w1", reason="action_failed", result=result)


def nothing() -> None: ...


class TestSubmit:
    def test_execution_is_accepted_with_all_that_was_asked_for(self, muster):
        execution = muster.submit(
            "core.echo", {"message": "hello"}, priority=5, correlation_id="c", timeout_seconds=7
        )
        row = Execution.objects.get()
        assert (execution.id, execution.status) == (row.pk, "requested")
        assert (row.parameters, row.priority) == ({"message": "hello"}, 5)
        assert (row.correlation_id, row.timeout_seconds) == ("c", 7)

    def test_key_that_was_used_gives_the_first_execution(self, muster):
        first = muster.submit("core.echo", idempotency_key="A-1")
        assert muster.submit("core.echo", idempotency_key="A-1").id == first.id
        with pytest.raises(muster_client.IdempotencyConflict) as raised:
            muster.submit("core.echo", {"message": "other"}, idempotency_key="A-1")
        assert raised.value.status == 409

    def test_lost_answer_leads_to_no_second_execution_even_without_a_key(self, muster, network):
        network.faults = [lost, lost]
        execution = muster.submit("core.echo")
        assert [row.pk for row in Execution.objects.all()] == [execution.id]
        assert len(network.requests) == 3

    def test_key_of_none_is_no_key(self, muster, network):
        network.faults = [lost]
        execution = muster.submit("core.echo", idempotency_key=None)
        (id,) = muster.submit_many([{"action_ref": "core.echo", "idempotency_key": None}])
        assert {row.pk for row in Execution.objects.all()} == {execution.id, id}
        assert all(row.idempotency_key for row in Execution.objects.all())

    def test_two_submits_are_two_executions(self, muster):
        assert muster.submit("core.echo").id != muster.submit("core.echo").id

    def test_many_are_accepted_once_though_the_answer_is_lost(self, muster, network):
        network.faults = [lost]
        news = [{"action_ref": "core.echo", "parameters": {"times": n}} for n in range(1, 4)]
        ids = muster.submit_many(news)
        rows = {row.pk: row.parameters["times"] for row in Execution.objects.all()}
        assert [rows[id] for id in ids] == [1, 2, 3]
        assert len(rows) == 3

    def test_many_are_refused_whole_with_the_place_of_the_fault(self, muster):
        with pytest.raises(muster_client.Invalid) as raised:
            muster.submit_many([{"action_ref": "core.echo"}, {"action_ref": "core.ecko"}])
        assert [error.pointer for error in raised.value.errors] == ["/executions/1/action_ref"]
        assert not Execution.objects.exists()


class TestErrors:
    def test_faults_of_a_request_are_named_and_it_is_not_repeated(self, muster, network):
        with pytest.raises(muster_client.Invalid) as raised:
            muster.submit("core.echo", {"times": 0})
        (error,) = raised.value.errors
        assert (error.pointer, raised.value.kind) == ("/parameters/times", "invalid")
        assert "expected at least 1, found 0" in str(raised.value)
        assert len(network.requests) == 1

    def test_unknown_token_is_unauthorized(self, connect):
        with pytest.raises(muster_client.Unauthorized):
            connect("mst_unknown").submit("core.echo")

    def test_token_without_the_permission_is_forbidden(self, connect):
        text = principals.token("reader", principals.given("viewer"))
        with pytest.raises(muster_client.Forbidden, match=r"executions\.run"):
            connect(text).submit("core.echo")

    def test_unknown_execution_is_not_found(self, muster):
        with pytest.raises(muster_client.NotFound):
            muster.get(uuid.uuid4())

    def test_nothing_but_an_id_becomes_a_part_of_a_path(self, muster, network):
        for call in (muster.get, muster.wait, muster.cancel):
            with pytest.raises(muster_client.InvalidArgument, match=r"UUID.*'\.\./tokens'"):
                call("../tokens")
        with pytest.raises(muster_client.InvalidArgument, match="found 'nope'"):
            list(muster.follow("nope"))
        assert network.requests == []

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"x": float("nan")}, "JSON"),
            ({"x": {1, 2}}, "JSON.*set"),
            (["x"], r"expected a mapping, found \['x'\]"),
        ],
    )
    def test_what_cannot_be_written_as_json_is_an_error_of_the_client(
        self, muster, network, parameters, message
    ):
        with pytest.raises(muster_client.InvalidArgument, match=message) as raised:
            muster.submit("core.echo", parameters)
        assert isinstance(raised.value, muster_client.MusterClientError)
        assert network.requests == []

    def test_answer_of_something_else_is_unexpected(self, muster, network):
        network.faults = [answered(200, [1])]
        with pytest.raises(muster_client.UnexpectedAnswer):
            muster.submit("core.echo")
        network.faults = [answered(404)]
        with pytest.raises(muster_client.UnexpectedAnswer, match="404"):
            muster.submit("core.echo")

    @pytest.mark.parametrize(("url", "token"), [("muster.test", "mst_x"), ("http://x", "")])
    def test_client_needs_a_url_and_a_token(self, url, token):
        with pytest.raises(muster_client.InvalidArgument, match="expected"):
            muster_client.Muster(url, token=token)


class TestPatience:
    def test_refused_connections_are_repeated_with_growing_pauses(self, muster, network):
        network.faults = [refused] * 5
        muster.submit("core.echo")
        assert len(network.pauses) == 5
        for number, pause in enumerate(network.pauses):
            assert 0.05 * 2**number <= pause <= 0.1 * 2**number

    @pytest.mark.parametrize("status", [429, 503])
    def test_server_says_when_to_come_again(self, muster, network, status):
        network.faults = [answered(status, BUSY, retry_after="7")]
        muster.submit("core.echo")
        assert network.pauses == [7.0]

    def test_conflict_that_passes_is_repeated(self, muster, network):
        network.faults = [answered(409, {"type": "urn:muster:problem:x"}, retry_after="1")]
        muster.submit("core.echo")
        assert network.pauses == [1.0]

    def test_proxy_without_a_server_behind_it_is_repeated(self, muster, network):
        network.faults = [answered(502)]
        muster.submit("core.echo")
        assert len(network.pauses) == 1

    def test_last_error_is_raised_when_patience_is_over(self, connect, network):
        network.faults = [refused] * 100
        with pytest.raises(muster_client.Unreachable, match="Connection refused"):
            connect(patience=Patience(seconds=20)).submit("core.echo")
        assert 10 < network.now <= 20

    def test_server_that_asks_for_more_patience_than_there_is_gets_no_more_requests(
        self, connect, network
    ):
        network.faults = [answered(503, BUSY, retry_after="3600")]
        with pytest.raises(muster_client.Unavailable) as raised:
            connect(patience=Patience(seconds=20)).submit("core.echo")
        assert raised.value.retry_after_seconds == 3600
        assert (network.pauses, len(network.requests)) == ([], 1)

    def test_retry_after_may_be_a_date(self):
        at = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
        answer = wire.Answer(503, {"retry-after": at}, b"")
        assert answer.retry_after_seconds == pytest.approx(30, abs=2)

    @pytest.mark.parametrize("text", ["", "soon", "-1"])
    def test_retry_after_that_cannot_be_read_is_none(self, text):
        assert wire.Answer(503, {"retry-after": text}, b"").retry_after_seconds is None


class TestWait:
    def test_wait_ends_with_the_execution(self, muster, network):
        id = muster.submit("core.echo").id
        advance(network, schedule, claim, nothing, complete)
        execution = muster.wait(id)
        assert (execution.status, execution.result) == ("completed", {"sum": 3})
        assert len(network.pauses) == 3

    def test_wait_goes_on_while_the_server_is_away(self, muster, network):
        id = muster.submit("core.echo").id
        advance(network, schedule, claim, complete)
        network.faults = [refused, answered(503, BUSY), refused]
        assert muster.wait(id, timeout_seconds=60).is_completed

    def test_what_does_not_end_in_time_is_still_open(self, muster, network):
        id = muster.submit("core.echo").id
        with pytest.raises(muster_client.StillOpen, match="still requested"):
            muster.wait(id, timeout_seconds=9)
        assert network.now == pytest.approx(9)

    def test_server_that_stays_away_ends_a_wait_in_its_time(self, muster, network):
        id = muster.submit("core.echo").id
        network.faults = [refused] * 100
        with pytest.raises(muster_client.Unreachable):
            muster.wait(id, timeout_seconds=9)
        assert network.now <= 9

    def test_server_that_is_silent_ends_a_wait_in_its_time(self, muster, network):
        id = muster.submit("core.echo").id
        network.faults = [network.silent]
        with pytest.raises(muster_client.StillOpen, match=str(id)):
            muster.wait(id, timeout_seconds=5)
        assert network.now == 5

    def test_last_look_has_the_time_for_an_answer(self, muster, network):
        id = muster.submit("core.echo").id
        network.faults = [network.silent]
        with pytest.raises(muster_client.StillOpen):
            muster.wait(id, timeout_seconds=0)
        assert network.now == 1

    def test_try_is_no_longer_than_the_client_was_told(self, connect, network):
        muster = connect(timeout=3.0)
        id = muster.submit("core.echo").id
        network.faults = [network.silent] * 100
        with pytest.raises(muster_client.StillOpen):
            muster.wait(id, timeout_seconds=8)
        assert max(network.pauses) < 3
        assert {each.extensions["timeout"]["read"] for each in network.requests[:2]} == {3.0}

    def test_run_returns_the_result(self, muster, network):
        advance(network, nothing, schedule, claim, complete)
        assert muster.run("core.echo", {"message": "x"}) == {"sum": 3}

    def test_run_that_fails_raises_with_the_execution(self, muster, network):
        advance(network, nothing, schedule, claim, fail)
        with pytest.raises(muster_client.ExecutionDidNotComplete, match="no paper") as raised:
            muster.run("core.echo")
        assert raised.value.execution.reason == "action_failed"


class TestFollow:
    def test_each_event_comes_once_and_in_order(self, muster, network):
        id = muster.submit("core.echo").id
        advance(network, nothing, schedule, nothing, claim, nothing, complete)
        network.faults = [refused, lost]
        events = list(muster.follow(id))
        assert [event.event for event in events] == ["schedule", "claim", "complete"]
        assert events[-1].reason == "succeeded"
        assert events[-1].at.tzinfo is not None

    def test_history_of_what_has_ended_is_all_there(self, muster, network):
        id = muster.submit("core.echo").id
        for step in (schedule, claim, complete):
            step()
        assert [event.to_status for event in muster.follow(id)][-1] == "completed"
        assert network.pauses == []

    def test_story_without_an_end_is_still_open(self, muster):
        id = muster.submit("core.echo").id
        with pytest.raises(muster_client.StillOpen):
            list(muster.follow(id, timeout_seconds=5))


class TestCancel:
    def test_execution_that_has_not_started_is_cancelled(self, muster):
        id = muster.submit("core.echo").id
        assert muster.cancel(id).status == "cancelled"
        assert muster.cancel(str(id)).status == "cancelled"

    def test_lost_answer_to_a_cancel_is_no_error(self, muster, network):
        id = muster.submit("core.echo").id
        network.faults = [lost]
        assert muster.cancel(id).status == "cancelled"

    def test_what_ended_otherwise_cannot_be_cancelled(self, muster):
        id = muster.submit("core.echo").id
        for step in (schedule, claim, complete):
            step()
        with pytest.raises(muster_client.AlreadyOver):
            muster.cancel(id)

    def test_cancel_of_somebody_else_is_seen_by_who_waits(self, muster, network):
        id = muster.submit("core.echo").id
        advance(
            network,
            nothing,
            lambda: executions.cancel(execution_id=id, actor="ada", now=clock.now()),
        )
        assert muster.wait(id).status == "cancelled"


def test_every_name_that_the_package_offers_is_there():
    for name in muster_client.__all__:
        assert getattr(muster_client, name).__name__ == name
