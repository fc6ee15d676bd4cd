"""Muster's side of benchmarks of streams; called by `muster_side`, with its settings."""

from __future__ import annotations

import time
from typing import Any

from orchestrator.access import grants, identities, tokens
from orchestrator.access.authorizer import AtTerminal
from orchestrator.core import clock, executions, isolation, news
from orchestrator.core.models import Execution

ROOT = AtTerminal("cli:benchmark")
AT_ONCE = 1_000


def make_listeners(*, number: int) -> list[str]:
    """The texts of tokens, each of a service account of its own that may see everything."""
    made = []
    for each in range(number):
        owner = identities.create_service(f"listener{each}", now=clock.now())
        identities.grant(owner, grants.check("viewer"), by=ROOT, now=clock.now())
        values: dict[str, Any] = {"owner": owner, "by": ROOT, "now": clock.now()}
        made.append(tokens.create(name=f"listener{each}", **values)[1])
    return made


def accept_of_owners(*, count: int, owners: int) -> None:
    """Executions that nobody runs, of so many owners by turns."""
    ref = "bench.noop" if isolation.least() == isolation.TRUSTED else "core.noop"
    new = executions.NewExecution(action_ref=ref)
    for start in range(0, count, AT_ONCE):
        askers = [f"owner{n % owners}" for n in range(start, min(start + AT_ONCE, count))]
        executions.request_many([new] * len(askers), requested_by=askers, now=clock.now())


def cancel_steadily(*, per_second: int) -> None:
    """Cancel all that is open, at this rate."""
    ids = list(Execution.objects.open().order_by("pk").values_list("pk", flat=True))
    began = time.monotonic()
    for number, id in enumerate(ids):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        executions.cancel(execution_id=id, actor="benchmark", reason="", now=clock.now())


def tell_nobody() -> None:
    """Let this process tell nothing after a commit, as `without_news` does for services."""
    news.tell = lambda *_, **__: None
