"""A rule that was disabled answers no event that is sent after the commit, whoever evaluates it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.scenarios.installation import Installation

RULE = {"ref": "scenario.switched", "action_ref": "core.noop"}
AT_ONCE = 25
EVALUATED_SECONDS = 120.0


@dataclass(frozen=True)
class Switched:
    """How many events were answered that were sent while the rule was enabled, and after it was
    disabled."""

    while_enabled: int
    after_disabled: int


def run(
    muster: Installation, *, times: int, tell: Callable[[str], None] = lambda text: None
) -> Switched:
    """Enable a rule, send an event, disable it, send another event: so many times."""
    muster.client.call("install_rules", news=[RULE])
    enabled, disabled = [], []
    for first in range(0, times, AT_ONCE):
        numbers = list(range(first, min(times, first + AT_ONCE)))
        sent = muster.client.call("switch_and_report", ref=RULE["ref"], numbers=numbers)
        enabled += [before for before, _ in sent]
        disabled += [after for _, after in sent]
    tell(f"{times} times disabled; waiting until all events are evaluated")
    muster.wait_for(
        lambda: muster.client.call("unevaluated_events") == 0,
        "not all are evaluated",
        within_seconds=EVALUATED_SECONDS,
    )
    return Switched(
        *(len(muster.client.call("enforcements", event_ids=ids)) for ids in (enabled, disabled))
    )
