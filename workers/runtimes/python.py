"""Python actions: a function `package.module:function`.

The function takes the parameters as keywords and returns a value that JSON can hold: a dict is the
result, anything else becomes `{"value": ...}`. It is called in a warm process (see `warm`), in a
process of its own if the action says `process: true` (see `interpreter`), or, if it is trusted, in
the worker's own process. Modules are imported once and kept: by each release of a pack in a warm
process of its own. Of a pack that was installed by its path, a new version takes effect when its
workers restart.

The output of a trusted function goes to the worker's own output: redirecting `sys.stdout` would mix
up actions that run in threads. Only on the main thread of a pool child, the environment has the
execution's markers, so that subprocesses of the action are found when it is cancelled (see
`workers.processes`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from muster_client import calling
from orchestrator.core import isolation
from orchestrator.core.packs import fetching
from workers import processes
from workers.isolated import functions, results
from workers.runtimes import interpreter, limits, warm, warm_process
from workers.runtimes.protocol import (
    Call,
    Outcome,
    completed,
    failed,
    interrupted,
    not_loaded,
    raised,
    timed_out,
)
from workers.runtimes.warm_process import Function

OWN_FILES = (__file__, functions.__file__)


def why_not() -> str:
    return warm_process.why_not()


def run(call: Call) -> Outcome:
    if call.options.get("process"):
        return interpreter.run(call)
    if call.isolation != isolation.TRUSTED:
        return warm.run(call, _function(call), _completed)
    return _run_here(call)


def _function(call: Call) -> Function:
    return Function(
        pack_path=call.pack_path,
        folder=functions.parent_of(call.pack_path),
        entry_point=str(call.entry_point),
        parameters=call.parameters,
        environment=call.options.get("env", {}),
    )


def _completed(call: Call, value: Any) -> Outcome:
    return completed(value if isinstance(value, dict) else {"value": value})


def _run_here(call: Call) -> Outcome:
    started = time.monotonic()
    process_id = os.getpid()
    try:
        outcome = _call(call)
    except limits.TimeLimitReached:
        # it is over, and so are its processes; only in a pool child do they have markers
        processes.terminate(
            call.execution_id, call.attempt, grace_seconds=call.cancel_grace_seconds
        )
        outcome = timed_out(call)
    except limits.Interrupted:
        outcome = interrupted()
    except BaseException as error:  # noqa: BLE001 - whatever an action raises, the worker goes on
        outcome = raised(functions.described(error, callers=OWN_FILES))
    if os.getpid() != process_id:
        os._exit(1)  # the action forked, and this is its child: it must not go on as a worker
    if outcome.event != "complete":  # a result belongs to the action alone
        outcome.result["duration_seconds"] = round(time.monotonic() - started, 3)
    return outcome


def _call(call: Call) -> Outcome:
    with (
        _markers(call),
        limits.limit(
            limits.name_of(call.execution_id, call.attempt),
            timeout_seconds=call.timeout_seconds,
            again_seconds=call.cancel_grace_seconds,
        ),
    ):
        try:
            with _loading:  # threads may load two releases of one pack
                functions.make_importable(call.pack_path)
                function = _loaded(call)
        except functions.CannotLoad as error:
            return not_loaded(call, str(error))
        value = calling.call(function, call.parameters)
        try:
            return _completed(call, results.storable(value))
        except results.NotStorable as error:
            return failed(str(error))


def _loaded(call: Call) -> Callable[..., Any]:
    """Load the function. Python writes nothing into a release: it is what its digest says."""
    entry_point = str(call.entry_point)
    if entry_point.partition(":")[0] in sys.modules:
        return functions.load(entry_point)  # nothing is compiled
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = before or fetching.is_of_release(call.pack_path)
    try:
        return functions.load(entry_point)
    finally:
        sys.dont_write_bytecode = before


_loading = threading.Lock()


@contextlib.contextmanager
def _markers(call: Call) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # all threads share one environment
        return
    markers = processes.markers(call.execution_id, call.attempt, call.action_ref)
    markers[processes.RETRIES] = str(call.retries)
    os.environ.update(markers)
    try:
        yield
    finally:
        for name in markers.keys() - {processes.WORKER_TOKEN}:
            os.environ.pop(name, None)
