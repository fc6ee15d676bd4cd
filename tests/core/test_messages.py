"""Messages name ids and attempts, and are read as they were written."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from orchestrator.core.messages import UNREADABLE, dispatch, dispatched, requested

ID = UUID("01890000-0000-7000-8000-000000000001")
OTHER = UUID("01890000-0000-7000-8000-000000000002")


def test_task_of_a_dispatch_is_named_after_its_attempt() -> None:
    message = dispatch([(ID, 3)], worker_id=7)
    assert message.id == f"{ID}.3"


def test_attempts_that_a_dispatch_names_are_read_as_they_were_written() -> None:
    for attempts in ([(ID, 3)], [(ID, 3), (OTHER, 1)], [(UUID(int=n), n + 1) for n in range(32)]):
        message = dispatch(attempts, worker_id=7)
        assert dispatched(json.loads(message.body())[1]) == attempts
        assert len(message.headers()["kwargsrepr"]) < 120, "a header, which every tool shows"


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"attempts": []}, {"attempts": [["x", 1]]}, {"attempts": [[str(UUID(int=1))]]},
     {"attempts": [[str(UUID(int=1)), None]]}, {"attempts": 7}, {"execution_id": str(UUID(int=1))},
     {"attempts": [[str(ID), 1], [str(ID), 2**31]]}, {"execution_id": str(ID), "attempt": 0},
     {"execution_id": str(ID), "attempt": float("inf")}],
    ids=str,
)  # fmt: skip
def test_dispatch_that_names_no_attempt_is_unreadable(kwargs: dict[str, Any]) -> None:
    with pytest.raises(UNREADABLE):
        dispatched(kwargs)


def test_ttl_travels_as_milliseconds_in_text() -> None:
    message = dispatch([(ID, 1)], worker_id=7, ttl_ms=1_500)
    assert message.properties()["expiration"] == "1500"
    assert "expiration" not in dispatch([(ID, 1)], worker_id=7).properties()


def test_ids_are_spread_over_as_many_messages_as_batches_need() -> None:
    ids = [UUID(int=n) for n in range(501)]
    messages = requested(ids)
    assert [len(message.kwargs["execution_ids"]) for message in messages] == [250, 250, 1]
    assert requested([]) == []
