"""The call of an action's function, in the process that runs it.

For any Python since 3.8, with its standard library only, unless the type hints of the function need
pydantic: a hint such as `date` promises a value that JSON does not have.
"""

from __future__ import annotations

import dataclasses
import functools
import traceback
import typing
from typing import Any, Callable, Dict, Mapping, Optional

from muster_client import celery_tasks
from muster_client.action import MARK, TaskRejected, TryAgain

PLAIN = (str, int, float, bool, type(None), list, dict, Any)
"""Hints of values that come from JSON as they are."""

OWN_FILES = (__file__, celery_tasks.__file__)


def call(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Call a function as its worker should: one that is decorated gets what its type hints say, a
    Celery task what it expects of Celery."""
    is_task = celery_tasks.is_task(function)
    if not is_task and not hasattr(function, MARK):
        return function(**parameters)
    signed = celery_tasks.signed(function) if is_task else function
    converter = _converter(signed, is_task and celery_tasks.is_bound(function))
    values = converter(parameters) if converter else dict(parameters)
    result = celery_tasks.run(function, values) if is_task else function(**values)
    return _plain(result)


ASKS = {"try_again": TryAgain, "task_rejected": TaskRejected}
"""The exceptions that ask for something, by the key of an answer that says so."""


def asked(error: BaseException) -> Dict[str, Dict[str, Any]]:
    """The requests of an exception, by their key in `ASKS`; empty if it is a failure."""
    return {
        name: {"after_seconds": getattr(error, "after_seconds", None)}
        for name, kind in ASKS.items()
        if isinstance(error, kind)
    }


def message(error: BaseException) -> str:
    """The message of an exception, with its type in front. One that says why the action cannot
    begin is no error, and speaks for itself."""
    if isinstance(error, TaskRejected) and str(error):
        return str(error)
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def cause(error: BaseException) -> BaseException:
    """The exception to describe: the one for which an action asks for another attempt."""
    if isinstance(error, TryAgain) and error.__cause__ is not None:
        return error.__cause__
    return error


@functools.lru_cache(maxsize=None)  # noqa: UP033 - of Python 3.9
def _converter(
    function: Callable[..., Any], is_bound: bool
) -> Optional[Callable[[Any], Dict[str, Any]]]:
    """Makes the values that the hints promise; None if JSON has them all."""
    hints = typing.get_type_hints(function)
    if all(_is_plain(hint) for name, hint in hints.items() if name != "return"):
        return None
    from muster_client import schemas

    return schemas.Parameters(function, is_bound=is_bound).converted


def _is_plain(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is None:
        return hint in PLAIN
    if origin is typing.Literal:
        return True
    if origin in (list, dict) or "Union" in str(origin):
        return all(map(_is_plain, typing.get_args(hint)))
    return False


def _plain(value: Any) -> Any:
    """A model of pydantic or a dataclass as JSON; anything else as it is."""
    is_model = hasattr(value, "model_dump") or dataclasses.is_dataclass(value)
    if not is_model or isinstance(value, type):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)
