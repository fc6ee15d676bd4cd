"""All runtimes, and those that this worker offers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

import structlog
from django.conf import settings

from orchestrator.core import isolation, packs
from workers.isolated import results
from workers.runtimes.protocol import Call, Outcome, Runtime, failed, unavailable

log = structlog.get_logger(__name__)

BUILT_IN = {
    "python": "workers.runtimes.python",
    "shell": "workers.runtimes.shell",
    "node": "workers.runtimes.node",
    "http": "workers.runtimes.http",
    "container": "workers.runtimes.container",
}


def run(call: Call) -> Outcome:
    """Run the action to its end, or to its time limit. The result can always be stored: plain JSON
    without NUL characters, lone surrogates or NaN."""
    try:
        runtime = load(call.runtime)
    except LookupError:
        return failed(f"This worker has no runtime {call.runtime!r}.", by="worker")
    if lacking := _without_code(call):
        return lacking
    gives = _isolation(call.runtime)
    if not isolation.is_enough(gives, call.isolation):
        return failed(
            f"The action needs the isolation {call.isolation}, and this worker gives the runtime "
            f"{call.runtime} {gives}.",
            by="worker",
        )
    if call.runtime in BUILT_IN:
        return runtime.run(call)
    return _run_added(runtime, call)


def _without_code(call: Call) -> Outcome | None:
    """The outcome of an action whose pack's folder, or script, is not on this host; None if it is.
    Code that Python loads into a process that is used again is not checked: it may be in memory
    already."""
    is_imported_here = call.runtime == "python" and not call.options.get("process")
    if call.runtime in packs.WITHOUT_CODE or is_imported_here:
        return None
    if why := packs.missing_folder(call.pack_path):
        return unavailable(call, why, missing=call.pack)
    if call.runtime == "python":
        return None  # its own interpreter looks for the module
    why = packs.missing_entry_point(call.runtime, call.entry_point, pack_path=call.pack_path)
    return unavailable(call, why) if why else None


def _run_added(runtime: Runtime, call: Call) -> Outcome:
    """Run an added runtime: foreign code may raise, and return results that cannot be stored."""
    try:
        outcome = runtime.run(call)
        return Outcome(outcome.event, outcome.reason, results.storable(outcome.result))
    except results.NotStorable as error:
        return failed(str(error))
    except Exception as error:
        log.exception("runtime failed", runtime=call.runtime, execution_id=call.execution_id)
        return failed(results.text(f"Runtime {call.runtime}: {error!r}."), by="worker")


@functools.cache
def load(name: str) -> Runtime:
    """Load the runtime of this name. Raises LookupError, or the errors of its import."""
    if name in BUILT_IN:
        return cast("Runtime", importlib.import_module(BUILT_IN[name]))
    for point in metadata.entry_points(group=packs.RUNTIMES_GROUP, name=name):
        return cast("Runtime", point.load())
    raise LookupError(name)


def in_process(runtime: str, options: Mapping[str, Any]) -> bool:
    """Return True if such an action is stopped through the pool's child or thread that launched it:
    it runs there, or in a warm process below."""
    if runtime in BUILT_IN:
        return packs.in_process(runtime, options)
    return bool(getattr(load(runtime), "in_process", True))


def names() -> list[str]:
    """The names of all runtimes: the built-in ones, and those that entry points add."""
    added = {point.name for point in metadata.entry_points(group=packs.RUNTIMES_GROUP)}
    if taken := added & BUILT_IN.keys():
        log.warning("entry points cannot replace built-in runtimes", runtimes=sorted(taken))
    return [*BUILT_IN, *sorted(added - BUILT_IN.keys())]


def _isolation(name: str) -> str:
    """The strongest isolation that this worker gives to actions of a runtime."""
    if name == "container":
        return isolation.CONTAINER
    if name not in BUILT_IN and getattr(load(name), "in_process", True):
        return isolation.TRUSTED
    return isolation.of_processes()


def span(name: str) -> str:
    """The weakest and the strongest isolation of the actions of a runtime here, as text."""
    strongest = _isolation(name)
    weakest = strongest if name == "container" else isolation.least()
    return strongest if weakest == strongest else f"{weakest} to {strongest}"


def survey() -> dict[str, str]:
    """All runtimes, each with the reason why this worker cannot offer it; empty if it can."""
    return {name: _why_not(name) for name in names()}


def offered() -> list[str]:
    """The runtimes that this worker offers to the fleet. Logs the reasons for the others."""
    reasons = survey()
    for name, why_not in reasons.items():
        if why_not:
            log.info("runtime not offered", runtime=name, why=why_not)
    return [name for name, why_not in reasons.items() if not why_not]


def _why_not(name: str) -> str:
    try:
        reason: Any = load(name).why_not() or _too_weak(name)
    except Exception as error:  # noqa: BLE001 - one that cannot be loaded must not stop the others
        return f"it cannot be loaded: {error!r}"
    return str(reason or "")


def _too_weak(name: str) -> str:
    gives, least = _isolation(name), isolation.least()
    if isolation.is_enough(gives, least):
        return ""
    is_stated = settings.MUSTER.least_isolation == least
    setting = "MUSTER_LEAST_ISOLATION" if is_stated else "MUSTER_ACTION_USER"
    return f"its actions have the isolation {gives}, and {setting} asks for {least}"
