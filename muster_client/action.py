"""The decorator of actions. It changes nothing about a function: `manage.py pack install` reads
what it says, and the worker calls the function.

For any Python since 3.8, with its standard library only: the interpreter of a pack imports this.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__muster_action__"
"""The attribute of a decorated function that holds what its decorator says."""


class TryAgain(Exception):
    """The action asks for another attempt, as far as its policy has one left.

    `after_seconds` counts instead of the delay of the policy. No `retry_on` needs to name it.
    """

    def __init__(self, message: str = "", *, after_seconds: Optional[float] = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class TaskRejected(Exception):
    """The action cannot begin now, and says by this that it has not begun.

    Its execution waits and is run later, as often as it takes until its deadline; no policy counts
    it. `after_seconds` says when; otherwise Muster waits longer each time. Meanwhile its worker
    takes nothing more of the same queue. Raise it only before any effect: also an action that is
    not idempotent is then run again.
    """

    def __init__(self, message: str = "", *, after_seconds: Optional[float] = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


@overload
def action(function: F) -> F: ...


@overload
def action(
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    idempotent: bool = False,
    retry: Optional[Mapping[str, Any]] = None,
    timeout_seconds: Optional[float] = None,
    **keys: Any,
) -> Callable[[F], F]: ...


def action(function: Any = None, **keys: Any) -> Any:
    """Make a function an action of the pack in whose folder it stands.

    Its name is the function's, its description the first paragraph of the docstring, its parameters
    the function's, by their type hints. `keys` are those of an action's YAML file, such as
    `idempotent`, `retry`, `timeout_seconds`, `worker_selector`, and are checked as those are.
    """

    def mark(function: Any) -> Any:
        stated: Dict[str, Any] = {name: value for name, value in keys.items() if value is not None}
        setattr(function, MARK, stated)
        return function

    return mark if function is None else mark(function)
