"""Old executions leave a running installation, by the executor's own rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.scenarios.installation import Installation


def test_executors_remove_what_is_old_and_nothing_else(install: Callable[..., Any]) -> None:
    muster: Installation = install(keep_executions_days=10, prune_interval_seconds=1)
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    young = muster.submit("core.echo", {"text": "hello"})
    muster.wait_for_end(young)
    old, events = muster.client.call("copy_as_old", id=young, days=11)
    younger, _ = muster.client.call("copy_as_old", id=young, days=9)
    assert events == 3

    muster.wait_for(lambda: old not in muster.executions(), "the old execution is still there")
    assert muster.events(old) == []
    assert muster.executions().keys() == {young, younger}
    assert len(muster.events(younger)) == len(muster.events(young))
