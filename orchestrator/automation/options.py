"""Options of a rule: how its executions are requested, and when it does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.automation import parameters
from orchestrator.automation.problems import Problem, nearest_or_all
from orchestrator.core import retry_policy, selectors
from orchestrator.core.executions import BOUNDS
from orchestrator.core.json_values import is_number
from orchestrator.core.packs.keys import QUEUE

OF_EXECUTIONS = (
    "priority", "timeout_seconds", "deadline_seconds", "queue_ttl_ms",
    "scheduled_timeout_seconds", "worker_selector", "retry", "queue",
)  # fmt: skip
"""Options that its executions are requested with."""
OPTIONS = (*OF_EXECUTIONS, "backstop", "suppress")

LONGEST_SUPPRESSION_SECONDS = 366 * 86_400


def problems(options: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with the options of a rule."""
    for name, value in options.items():
        if name not in OPTIONS:
            yield Problem((name,), f"is no option of a rule; {nearest_or_all(name, OPTIONS)}")
        elif name in BOUNDS:
            yield from _bound_problems(name, value)
        elif name == "queue" and not QUEUE.fits(value):
            # whether there is one is known when it answers: its pack may bring the queue, too
            yield Problem((name,), f"expected {QUEUE.expected}, found {value!r:.80}")
        elif name == "backstop" and not isinstance(value, bool):
            yield Problem((name,), f"expected true or false, found {value!r:.80}")
        elif name in ("retry", "worker_selector", "suppress"):
            if not isinstance(value, Mapping):
                yield Problem((name,), f"expected a mapping, found {value!r:.80}")
                continue
            for problem in _MAPPINGS[name](value):
                yield problem.below(name)


def _bound_problems(name: str, value: Any) -> Iterator[Problem]:
    least, most = BOUNDS[name]
    is_whole = isinstance(value, int) or name not in ("priority", "queue_ttl_ms")
    if not is_number(value) or not is_whole or not least <= value <= most:
        yield Problem((name,), f"expected {least} to {most}, found {value!r:.80}")


def _retry_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    for name, message in retry_policy.problems(value):
        yield Problem((name,) if name else (), message)


def _selector_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    for name, message in selectors.problems(value):
        yield Problem((name,) if name else (), message)


def _suppress_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    """`by`: an expression; its values are what counts as the same."""
    for name in value:
        if name not in ("by", "seconds"):
            yield Problem((name,), f"is unknown; {nearest_or_all(name, ('by', 'seconds'))}")
    seconds = value.get("seconds")
    if not is_number(seconds) or not 0 < seconds <= LONGEST_SUPPRESSION_SECONDS:
        yield Problem(
            ("seconds",),
            f"expected a number above 0, at most {LONGEST_SUPPRESSION_SECONDS}, "
            f"found {seconds!r:.80}",
        )
    yield from parameters.check({"by": value.get("by", "")})


_MAPPINGS = {
    "retry": _retry_problems,
    "worker_selector": _selector_problems,
    "suppress": _suppress_problems,
}
