"""Celery tasks, run without Celery's worker: the function, and what it expects around it.

For any Python since 3.8. Celery is loaded by the module of a task, or not at all.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import sys
import threading
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, cast

from muster_client.action import TaskRejected, TryAgain

SELF = ("name", "request", "retry", "max_retries", "default_retry_delay")
"""The attributes that `self` has in a bound task."""
REQUEST = ("id", "retries", "task", "args", "kwargs", "called_directly", "is_eager")
"""The attributes that `self.request` has."""


class NotInMuster(AttributeError):
    """The task uses something of Celery that is not there."""


def is_task(function: Any) -> bool:
    """Return True for a task of Celery. Without loading it, as no task exists without it."""
    if "celery" not in sys.modules:
        return False
    task = real(function)  # the first look into a proxy loads the rest of Celery
    module = sys.modules.get("celery.app.task")
    return module is not None and isinstance(task, module.Task)


def real(task: Any) -> Any:
    """The task itself, if this is a proxy of one that its app has not made yet."""
    evaluate = getattr(task, "_get_current_object", None)
    return task if evaluate is None else evaluate()


def is_bound(task: Any) -> bool:
    """Return True if the task's function takes `self`."""
    return not isinstance(inspect.getattr_static(type(real(task)), "run"), staticmethod)


def function_of(task: Any) -> Callable[..., Any]:
    """The function of a task, without Celery's own retries around it."""
    run: Any = inspect.getattr_static(type(real(task)), "run")
    function: Any = run.__func__ if isinstance(run, staticmethod) else run
    return cast("Callable[..., Any]", function)


def signed(task: Any) -> Callable[..., Any]:
    """The function whose signature says which parameters the task takes."""
    return cast("Callable[..., Any]", inspect.unwrap(function_of(task)))


def run(task: Any, parameters: Mapping[str, Any]) -> Any:
    """Run a task's function. What Celery would retry raises TryAgain, and what it would put back
    into its queue TaskRejected."""
    arguments = (Self(task, parameters),) if is_bound(task) else ()
    never = tuple(getattr(task, "dont_autoretry_for", ()))
    again = tuple(getattr(task, "autoretry_for", ()))
    celery = sys.modules["celery.exceptions"]
    try:
        with soft_limit(task.soft_time_limit):
            return function_of(task)(*arguments, **parameters)
    except (TryAgain, TaskRejected):
        raise
    except celery.Retry as error:
        raise TryAgain(str(error), after_seconds=_seconds_of(error.when)) from error.exc
    except celery.Reject as error:
        if not error.requeue:
            raise
        raise TaskRejected(str(error.reason or "The task was rejected")) from None
    except never:
        raise
    except again as error:
        raise TryAgain(str(error)) from error


class Request:
    """`self.request` of a bound task."""

    def __init__(self, task: str, parameters: Mapping[str, Any]) -> None:
        self.id: Optional[str] = os.environ.get("MSTR_EXECUTION_ID")
        self.retries = int(os.environ.get("MSTR_RETRIES", "0"))
        self.task = task
        self.args = ()
        self.kwargs: Dict[str, Any] = dict(parameters)
        self.called_directly = self.is_eager = False

    def __getattr__(self, name: str) -> Any:
        raise NotInMuster(f"self.request.{name}: expected one of {', '.join(REQUEST)}")


class Self:
    """`self` of a bound task."""

    def __init__(self, task: Any, parameters: Mapping[str, Any]) -> None:
        self.name: str = task.name
        self.max_retries: int = task.max_retries
        self.default_retry_delay: float = task.default_retry_delay
        self.request = Request(task.name, parameters)

    def retry(
        self,
        exc: Optional[BaseException] = None,
        countdown: Optional[float] = None,
        eta: Optional[datetime] = None,
    ) -> Any:
        """Ask Muster for another attempt, as far as the policy has one left."""
        seconds = _seconds_of(countdown if eta is None else eta)
        seconds = self.default_retry_delay if seconds is None else seconds
        cause = exc or sys.exc_info()[1]
        message = str(cause or "The task asked to be retried")
        raise TryAgain(message, after_seconds=seconds) from cause

    def __getattr__(self, name: str) -> Any:
        raise NotInMuster(f"self.{name}: expected one of {', '.join(SELF)}")


def _seconds_of(when: Any) -> Optional[float]:
    """The seconds until `when`: seconds, or a time."""
    if not isinstance(when, datetime):
        return when  # type: ignore[no-any-return]
    now = datetime.now(timezone.utc) if when.tzinfo else datetime.utcnow()  # noqa: DTZ003, UP017
    return max((when - now).total_seconds(), 0.0)


@contextlib.contextmanager
def soft_limit(seconds: Optional[float]) -> Iterator[None]:
    """Raise SoftTimeLimitExceeded in the task after so many seconds, as Celery does."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    exceeded = sys.modules["celery.exceptions"].SoftTimeLimitExceeded

    def exceed(number: int, frame: Any) -> None:
        raise exceeded()

    before = signal.signal(signal.SIGALRM, exceed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
