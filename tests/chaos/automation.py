"""`make chaos ARGS=automation`: events, timers and switched rules at full size, while services die.

Three parts, each on an installation of its own: `events` (5,000, a fifth of them reported twice,
under kills, broken servers and every failpoint of automation), `timers` (200 of one second, for
five minutes), `switches` (a rule that is disabled 1,000 times).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests import servers
from tests.chaos import failpoints, reporter, storm, switching, ticking
from tests.chaos.outcome import summary
from tests.chaos.profiles import SETTINGS
from tests.scenarios.installation import Backend, Installation

PARTS = ("events", "timers", "switches")
KINDS = (
    "kill api", "kill executor", "kill sensor", "kill worker",
    "kill broker", "stop broker", "close all connections", "restart database",
)  # fmt: skip
DURABLE = {"synchronous_commit": "on"}
EXECUTIONS = 300
"""Beside the events: what the load of every storm asks for."""

Tell = Callable[[str], None]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    tell(f"--seed {options.seed}")
    with _backend() as backend:
        parts = {"events": _events, "timers": _timers, "switches": _switches}
        failed = [name for name in options.parts if not _holds(parts[name], backend, options, tell)]
    tell(f"failed: {', '.join(failed)}" if failed else "all parts hold")
    return int(bool(failed))


def _holds(
    part: Callable[[Backend, argparse.Namespace, Tell], bool],
    backend: Backend,
    options: argparse.Namespace,
    tell: Tell,
) -> bool:
    try:
        return part(backend, options, tell)
    except AssertionError as error:
        tell(f"does not hold: {error}"[:5_000])
        return False


def _events(backend: Backend, options: argparse.Namespace, tell: Tell) -> bool:
    reporters: list[reporter.Reporter] = []

    def beside(of: storm.Storm) -> storm.Beside:
        seconds = options.submit_seconds
        known = {"events": options.events, "seconds": seconds, "seed": options.seed}
        reporters.append(reporter.Reporter(of, **known))
        return reporters[0]

    outcome = storm.run(
        backend,
        executions=EXECUTIONS,
        faults_of_a_kind=options.times,
        submit_seconds=options.submit_seconds,
        seed=options.seed,
        executors=2,
        sensors=2,
        pack_paths=[reporter.PACK],
        beside=beside,
        kinds=KINDS,
        points=() if options.no_failpoints else list(points()),
        tell=tell,
        logs_to=options.logs_to,
    )
    tell(summary(outcome))
    tell(f"{len(reporters[0].recorded)} events, {reporters[0].repeated} reports of them repeated")
    return not (outcome.violations or outcome.unreached)


def points() -> Iterator[failpoints.Failpoint]:
    """The failpoints of automation."""
    for point in failpoints.failpoints():
        if point.site.startswith("automation."):
            yield point


def _timers(backend: Backend, options: argparse.Namespace, tell: Tell) -> bool:
    with _installation(backend) as muster:
        ticked = ticking.storm(
            muster,
            timers=options.timers,
            seconds=options.timer_seconds,
            seed=options.seed,
            tell=tell,
        )
    tell(
        f"{ticked.ticks} ticks of {options.timers} timers, none missing, none twice; "
        f"{ticked.kills} kills, the latest {ticked.latest_seconds:.1f} s late"
    )
    return True


def _switches(backend: Backend, options: argparse.Namespace, tell: Tell) -> bool:
    with _installation(backend) as muster:
        for number in range(3):
            muster.start_executor(f"e{number}")
        muster.ready()
        switched = switching.run(muster, times=options.switches, tell=tell)
    tell(
        f"{switched.while_enabled} events answered that were sent while the rule was enabled, "
        f"{switched.after_disabled} after it was disabled"
    )
    return switched.while_enabled > 0 and switched.after_disabled == 0


@contextlib.contextmanager
def _installation(backend: Backend) -> Iterator[Installation]:
    muster = Installation(backend, **SETTINGS)
    try:
        yield muster
    finally:
        muster.close()


@contextlib.contextmanager
def _backend() -> Iterator[Backend]:
    with contextlib.ExitStack() as stack:
        backend = Backend(
            stack.enter_context(servers.PostgresServer(settings=DURABLE)),
            stack.enter_context(servers.RabbitServer()),
            stack.enter_context(servers.RedisServer()),
        )
        stack.callback(backend.close)
        yield backend


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make chaos ARGS=automation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all if left out")
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--submit-seconds", type=float, default=300.0, help="to report them in")
    parser.add_argument("--times", type=int, default=4, help="how often each fault happens")
    parser.add_argument("--no-failpoints", action="store_true", help="faults from outside alone")
    parser.add_argument("--timers", type=int, default=200)
    parser.add_argument("--timer-seconds", type=float, default=300.0)
    parser.add_argument("--switches", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run")
    parser.add_argument("--logs-to", type=Path, help="folder for all logs of the storm")
    options = parser.parse_args(arguments)
    options.parts = options.parts or list(PARTS)
    return options
