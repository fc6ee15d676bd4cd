"""Retry policies: whether another attempt may follow, and after which delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from orchestrator.core import spelling
from orchestrator.core.errors import MusterError
from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.reasons import Known, Reason
from orchestrator.core.redaction import quoted

BACKOFFS = ("none", "linear", "exponential", "fibonacci")

NEVER = frozenset(
    {
        Reason.SUCCEEDED,
        Reason.CANCELLED,
        Reason.CANCELLED_RUNNING,
        Reason.CANCEL_UNCONFIRMED,
        Reason.NO_WORKER_AVAILABLE,
        Reason.DEADLINE_PASSED,
        Reason.TASK_REJECTED,
    }
)
"""Ends that another attempt could not change, or that were asked for; and a deferral, which is no
end and is no policy's matter."""

RETRYABLE = frozenset(Reason) - NEVER
LONGEST_DELAY_MS = 366 * 86_400_000
"""The longest deadline of an execution: nothing can wait for longer, and a calendar has an end."""

LARGEST_EXPONENT = 62
"""Doubling further would only give a large number that `max_backoff_ms` cuts off."""


class InvalidRetryPolicy(MusterError):
    """The retry policy is not valid."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """The number of attempts, the reasons to retry, the delays. The default is one attempt: no
    retry."""

    max_attempts: int = 1
    backoff: str = "exponential"
    backoff_base_ms: int = 1_000
    max_backoff_ms: int = 30_000
    jitter: float = 0.2
    """The random part of a delay: 0.2 is between 80 % and 120 %."""
    retry_on: frozenset[Reason] | None = None
    """The reasons to retry; None for all after which the action is safe to run again, as far as it
    declares so."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetryPolicy:
        """Read a policy as an action holds it. Raises InvalidRetryPolicy that names every
        problem."""
        if faults := problems(values):
            raise InvalidRetryPolicy("; ".join(f"{name}: {text}" for name, text in faults) + ".")
        known = dict(values)
        if known.get("retry_on") is not None:
            known["retry_on"] = frozenset(map(Reason, known["retry_on"]))
        return cls(**known)

    def allows(self, reason: Reason, *, retry_count: int, idempotent: bool) -> bool:
        """Return True if an attempt that ended for this reason, after this many retries, may be
        repeated.

        At most `max_attempts` attempts in all. An action whose outcome is unknown is repeated only
        if it is idempotent, whatever `retry_on` says; one that finished only if `retry_on` says so,
        or if it asked for that itself.
        """
        if reason in NEVER or retry_count + 1 >= self.max_attempts:
            return False
        if reason.known is Known.OUTCOME_UNKNOWN and not idempotent:
            return False
        if reason is Reason.TRY_AGAIN:
            return True
        if self.retry_on is not None:
            return reason in self.retry_on
        return reason.known is not Known.FINISHED

    def delay_ms(self, attempts: int, *, random: Random | Callable[[], float]) -> int:
        """The delay after this many attempts: at least 0, at most `max_backoff_ms`, and a year.

        exponential: base * 2^(attempts - 1); linear: base * attempts; fibonacci: base * 1, 1, 2, 3,
        5, ...; none: 0. Then cut off at the maximum, then varied by the jitter, so that attempts
        that failed together do not start together again. `random` gives numbers in [0, 1).
        """
        most = min(self.max_backoff_ms, LONGEST_DELAY_MS)
        delay = min(self._factor(max(attempts, 1)) * self.backoff_base_ms, most)
        draw = random.random() if isinstance(random, Random) else random()
        varied = round(delay * (1 + self.jitter * (2 * draw - 1)))
        return min(varied, most)

    def _factor(self, attempts: int) -> int:
        match self.backoff:
            case "linear":
                return attempts
            case "exponential":
                return 1 << min(attempts - 1, LARGEST_EXPONENT)
            case "fibonacci":
                return _fibonacci(min(attempts, LARGEST_EXPONENT))
            case _:
                return 0


def problems(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Find all problems with a policy, as (key, what was expected and found)."""
    names = [field.name for field in fields(RetryPolicy)]
    unknown = [(str(name), _unknown(str(name), names)) for name in values if name not in names]
    return unknown + [
        (name, f"expected {expected}, found {quoted(values[name])}")
        for name, (fits, expected) in _EXPECTED.items()
        if name in values and not fits(values[name])
    ]


def _unknown(name: str, names: list[str]) -> str:
    near = spelling.near(name, names)
    hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(names)}"
    return f"unknown key, {hint}"


def _is_whole(value: Any, *, least: int) -> bool:
    return is_whole(value) and value >= least


def _is_fraction(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_retryable(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list | tuple | frozenset) and all(
        isinstance(item, str) and item in RETRYABLE for item in value
    )


_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "max_attempts": (lambda value: _is_whole(value, least=1), "a whole number above 0"),
    "backoff": (lambda value: value in BACKOFFS, f"one of {', '.join(BACKOFFS)}"),
    "backoff_base_ms": (lambda value: _is_whole(value, least=1), "a whole number above 0"),
    "max_backoff_ms": (lambda value: _is_whole(value, least=1), "a whole number above 0"),
    "jitter": (_is_fraction, "a number from 0 to 1"),
    "retry_on": (_is_retryable, f"a list of {', '.join(sorted(RETRYABLE))}"),
}


def _fibonacci(number: int) -> int:
    a, b = 0, 1
    for _ in range(number):
        a, b = b, a + b
    return a
