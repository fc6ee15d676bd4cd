"""`make chaos`: a storm of the nightly size with every failpoint, or as the arguments say.

`make chaos ARGS=automation`: events and timers at full size, see `tests.chaos.automation`.
`make chaos ARGS=gates`: task messages of a foreign client, see `tests.chaos.gates`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from settings.muster import QUEUE_TYPES
from tests import servers
from tests.chaos import automation, failpoints, gates, report, storm
from tests.chaos.faults import EVERYWHERE, ON_SERVERS
from tests.chaos.outcome import Outcome, summary
from tests.chaos.profiles import BY_DEFAULT, QUICKLY
from tests.scenarios.installation import Backend

DURABLE = {"synchronous_commit": "on"}
"""A killed PostgreSQL must not forget what it had confirmed; fsync is for the machine's death."""

DISK_MB = 1_000
BREAKABLE: dict[str, Any] = {
    "settings": DURABLE,
    "has_own_clock": True,
    "disk_mb": DISK_MB if servers.can_mount() else None,
}
"""A database whose clock can be stepped, and, where that can be had, whose disk can be filled."""


STEPS_SHARE = 0.2
"""Steps of tasks, for each execution."""

EXECUTORS = 2


def main() -> int:
    if sys.argv[1:2] == ["automation"]:
        return automation.main(sys.argv[2:])
    if sys.argv[1:2] == ["gates"]:
        return gates.main(sys.argv[2:])
    options = _options()
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    outcomes = []
    for name in options.backends:
        tell(f"{name}, --seed {options.seed}")
        with _backend(name) as backend:
            outcome = _storm(name, backend, options, tell)
        outcomes.append(outcome)
        sys.stdout.write(summary(outcome) + "\n" + report.table(outcome) + "\n")
    if options.report is not None:
        report.write(options.report, "chaos", "\n\n".join(map(report.section, outcomes)))
    return int(any(outcome.violations or outcome.unreached for outcome in outcomes))


def _storm(
    name: str, backend: Backend, options: argparse.Namespace, tell: Callable[[str], None]
) -> Outcome:
    executions, steps = options.executions, options.steps
    profile = BY_DEFAULT if options.default_settings else QUICKLY
    profile = replace(profile, settings={**profile.settings, "queue_type": options.queue_type})
    if executions is None:
        executions = 2_000 if options.default_settings else 10_000
    has_points = name == "servers" and not options.no_failpoints and not options.default_settings
    points = [point for point in failpoints.failpoints() if options.failpoints in point.site]
    return storm.run(
        backend,
        executions=executions,
        steps=int(executions * STEPS_SHARE) if steps is None else steps,
        faults_of_a_kind=options.times,
        submit_seconds=options.submit_seconds or executions / 12,
        seed=options.seed,
        executors=options.executors if name == "servers" else 1,
        kinds=options.faults,
        points=points if has_points else (),
        profile=profile,
        tell=tell,
        logs_to=options.logs_to,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--executions", type=int, help="10,000, or 2,000 with default settings")
    parser.add_argument("--steps", type=int, help="of tasks; a fifth of the executions")
    parser.add_argument("--times", type=int, help="how often each kind of fault happens: 10, or 1")
    parser.add_argument(
        "--faults", type=_kinds, metavar="KIND,KIND", help="only these kinds, or `none`"
    )
    parser.add_argument(
        "--failpoints", default="", metavar="TEXT", help="only those with this in their name"
    )
    parser.add_argument("--no-failpoints", action="store_true", help="faults from outside alone")
    parser.add_argument(
        "--default-settings",
        action="store_true",
        help="Muster's own settings instead of shortened ones, each fault once, no failpoints",
    )
    parser.add_argument("--queue-type", choices=QUEUE_TYPES, default="classic")
    parser.add_argument("--executors", type=int, default=EXECUTORS)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run")
    parser.add_argument("--submit-seconds", type=float, help="over which time to submit")
    parser.add_argument(
        "--backends", nargs="+", choices=["servers", "embedded"], default=["servers"]
    )
    parser.add_argument("--logs-to", type=Path, help="folder for all logs of the installation")
    parser.add_argument("--report", type=Path, help="file whose table of the last run is replaced")
    options = parser.parse_args()
    if options.times is None:
        options.times = 1 if options.default_settings else 10
    return options


def _kinds(text: str) -> list[str]:
    """Kinds of faults, by commas. Raises ArgumentTypeError with those that there are."""
    known = EVERYWHERE + ON_SERVERS
    wanted = [] if text == "none" else [kind.strip() for kind in text.split(",")]
    for kind in wanted:
        if kind not in known:
            told = f"there is no fault {kind!r}; expected some of: {', '.join(known)}"
            raise argparse.ArgumentTypeError(told)
    return wanted


@contextlib.contextmanager
def _backend(name: str):
    with contextlib.ExitStack() as stack:
        if name == "embedded":
            backend = Backend()
        else:
            backend = Backend(
                stack.enter_context(servers.PostgresServer(**BREAKABLE)),
                stack.enter_context(servers.RabbitServer()),
                stack.enter_context(servers.RedisServer()),
            )
        stack.callback(backend.close)
        yield backend


if __name__ == "__main__":
    raise SystemExit(main())
