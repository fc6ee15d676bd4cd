"""`make chaos ARGS=gates`: 10,000 task messages of a foreign client, while services die.

Two gates: `letters`, whose deliveries stay unacknowledged until they are answered, and `parcels`,
whose rows answer for them and whose lost attempts go through a retry queue.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests import servers
from tests.chaos import correspondent, failpoints, report, storm
from tests.chaos.correspondent import DOORS, Correspondent, Door
from tests.chaos.outcome import Outcome, summary
from tests.chaos.profiles import QUICKLY
from tests.scenarios.installation import Backend

CAMPAIGN = "gates"
KINDS = (
    "kill executor", "kill worker", "freeze executor", "stop worker", "kill pool child",
    "stop broker", "kill broker", "close all connections", "restart database",
    "delete output queue",
)  # fmt: skip
QUICK = (
    "kill executor", "kill worker", "freeze executor", "kill broker", "close all connections",
    "delete output queue",
)  # fmt: skip
"""Those of a small run."""
DURABLE = {"synchronous_commit": "on"}
EXECUTORS = 2
PROFILE = dataclasses.replace(QUICKLY, quiet_seconds=240.0)
"""What was sent last has the deadline of its queue."""

OF_CLASSIC = frozenset({"delete output queue"})
"""What the client of a quorum queue cannot do: it is not deleted only if it is empty."""

Tell = Callable[[str], None]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    tell(f"--seed {options.seed}")
    points = () if options.no_failpoints else list(_points(options.failpoints))
    doors = [door.of(options.queue_type) for door in DOORS if door.name in options.doors]
    if options.queue_type == "quorum":
        points = [point for point in points if point.provoked_by not in OF_CLASSIC]
        options.faults = [kind for kind in options.faults if kind not in OF_CLASSIC]
    with _backend() as backend:
        outcome = run(
            backend,
            messages=options.messages,
            seconds=options.submit_seconds or options.messages / 15,
            times=options.times,
            kinds=options.faults,
            seed=options.seed,
            doors=doors,
            points=points,
            tell=tell,
            logs_to=options.logs_to,
        )
    tell(summary(outcome))
    sys.stdout.write(report.table(outcome) + "\n")
    return int(bool(outcome.violations or outcome.unreached))


def run(
    backend: Backend,
    *,
    messages: int,
    seconds: float,
    times: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
    doors: Sequence[Door] = DOORS,
    points: Sequence[failpoints.Failpoint] = (),
    tell: Tell = lambda text: None,
    logs_to: Path | None = None,
) -> Outcome:
    """Send so many messages over so many seconds while each kind of fault happens so often."""
    clients: list[Correspondent] = []

    def beside(of: storm.Storm) -> storm.Beside:
        clients.append(
            Correspondent(of, messages=messages, seconds=seconds, seed=seed, doors=doors)
        )
        return clients[0]

    outcome = storm.run(
        backend,
        executions=max(20, messages // 20),
        faults_of_a_kind=times,
        submit_seconds=seconds,
        seed=seed,
        executors=EXECUTORS,
        queues={door.name: door.queue for door in doors},
        beside=beside,
        kinds=kinds,
        points=points,
        profile=PROFILE,
        tell=tell,
        logs_to=logs_to,
    )
    tell(clients[0].told())
    return outcome


def _points(text: str) -> Iterator[failpoints.Failpoint]:
    return (point for point in failpoints.failpoints(CAMPAIGN) if text in point.site)


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
        prog="make chaos ARGS=gates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--submit-seconds", type=float, help="to send them in; 15 a second")
    parser.add_argument("--times", type=int, default=10, help="how often each fault happens")
    parser.add_argument("--faults", type=_kinds, default=KINDS, metavar="KIND,KIND")
    parser.add_argument("--doors", type=lambda text: text.split(","), default=_names())
    parser.add_argument("--queue-type", choices=["classic", "quorum"], default="classic")
    parser.add_argument("--failpoints", default="", metavar="TEXT", help="those with this alone")
    parser.add_argument("--no-failpoints", action="store_true", help="faults from outside alone")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run")
    parser.add_argument("--logs-to", type=Path, help="folder for all logs of the storm")
    return parser.parse_args(arguments)


def _names() -> list[str]:
    return [door.name for door in correspondent.DOORS]


def _kinds(text: str) -> list[str]:
    """Kinds of faults, by commas; `none` for no fault. Raises ArgumentTypeError."""
    wanted = [] if text == "none" else [kind.strip() for kind in text.split(",")]
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"no fault {unknown[0]!r}; expected {', '.join(KINDS)}")
    return wanted
