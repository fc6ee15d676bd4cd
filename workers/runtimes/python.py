"""Python actions: a function `package.module:function`, called in the worker's own process.

The function takes the parameters as keywords and returns something that JSON can hold: a dict is
the result, anything else becomes `{"value": ...}`. Modules are imported once and kept, so a new
version of a pack takes effect when its workers restart. The parent of the pack's folder is on
`sys.path`, last, so that a pack cannot shadow what Muster itself imports.

What the function prints goes where the worker's own output goes: redirecting `sys.stdout` would
mix up actions that run in threads. On the main thread of a pool child, and only there, the
environment carries the execution's markers, so that subprocesses of the action are found when it
is cancelled (see `workers.processes`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.core.errors import MusterError
from orchestrator.core.reasons import Reason
from workers import processes
from workers.runtimes import interpreter, limits, results
from workers.runtimes.protocol import (
    Call,
    Outcome,
    completed,
    failed,
    not_loaded,
    timed_out,
)

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 20_000
"""Characters. Of a traceback the end is kept: that is where it happened."""


class CannotLoad(MusterError):
    """The entry point does not lead to a function: this host lacks the code, or a part of it."""


def why_not() -> str:
    return ""


def run(call: Call) -> Outcome:
    if call.options.get("process"):
        return interpreter.run(call)
    started = time.monotonic()
    process_id = os.getpid()
    try:
        outcome = _run(call)
    except limits.TimeLimitReached:
        # it is over, so nobody waits for what it started; only a pool child can have marked that
        processes.terminate(
            call.execution_id, call.attempt, grace_seconds=call.cancel_grace_seconds
        )
        outcome = timed_out(call)
    except limits.Interrupted:
        outcome = failed(
            "The action was interrupted.", by="worker", reason=Reason.CANCELLED_RUNNING
        )
    except BaseException as error:  # noqa: BLE001 - whatever an action raises, the worker goes on
        outcome = _raised(error)
    if os.getpid() != process_id:
        os._exit(1)  # the action forked, and this is its child: it must not go on as a worker
    if outcome.event != "complete":  # a result belongs to the action alone
        outcome.result["duration_seconds"] = round(time.monotonic() - started, 3)
    return outcome


def _run(call: Call) -> Outcome:
    with (
        _markers(call),
        limits.limit(
            limits.name_of(call.execution_id, call.attempt),
            timeout_seconds=call.timeout_seconds,
            again_seconds=call.cancel_grace_seconds,
        ),
    ):
        try:
            function = load(str(call.entry_point), pack_path=call.pack_path)
        except CannotLoad as error:
            return not_loaded(call, str(error))
        value = function(**call.parameters)
        try:
            result = results.storable(value)
        except results.NotStorable as error:
            return failed(str(error))
    return completed(result if isinstance(result, dict) else {"value": result})


def load(entry_point: str, *, pack_path: str) -> Callable[..., Any]:
    """The function behind `package.module:function`. Raises CannotLoad, or what the import does."""
    make_importable(pack_path)
    module_name, _, name = entry_point.partition(":")
    with _forgotten_unless_loaded(module_name):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # a module that the action's own module lacks is the action's business
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            raise CannotLoad(
                f"entry point {entry_point}: there is no module {error.name!r}"
            ) from None
        function: Callable[..., Any] | None = getattr(module, name, None)
        if not callable(function):
            raise CannotLoad(f"entry point {entry_point}: {module_name} has no function {name!r}")
    return function


@contextlib.contextmanager
def _forgotten_unless_loaded(module_name: str) -> Iterator[None]:
    """What is not there may be there the next time: no import of it is remembered until then."""
    parts = module_name.split(".")
    names = [".".join(parts[:number]) for number in range(1, len(parts) + 1)]
    new = [name for name in names if name not in sys.modules]
    if new:
        importlib.invalidate_caches()
    try:
        yield
    except CannotLoad:
        for name in new:
            sys.modules.pop(name, None)
        raise


@functools.cache
def make_importable(pack_path: str) -> None:
    # as it is called, and not where a link leads: modules are found by the name of the folder
    parent = os.path.dirname(os.path.abspath(pack_path))
    if parent not in sys.path:
        sys.path.append(parent)
        importlib.invalidate_caches()


@contextlib.contextmanager
def _markers(call: Call) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # the environment is one for all threads
        return
    markers = processes.markers(call.execution_id, call.attempt, call.action_ref)
    os.environ.update(markers)
    try:
        yield
    finally:
        for name in markers.keys() - {processes.WORKER_TOKEN}:
            os.environ.pop(name, None)


def _raised(error: BaseException) -> Outcome:
    """An exception's type, message and traceback, without the frames above the action's own."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return failed(
        results.text(message[:MESSAGE_LIMIT]),
        exception=results.text(type(error).__qualname__),
        traceback=results.text("".join(lines)[-TRACEBACK_LIMIT:]),
    )
