"""`make chaos`: a storm of the nightly size with every failpoint, or as the arguments say."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from pathlib import Path

from tests import servers
from tests.chaos import failpoints, report, storm
from tests.scenarios.installation import Backend

DURABLE = {"synchronous_commit": "on"}
"""A killed PostgreSQL must not forget what it had confirmed; fsync is for the machine's death."""


def main() -> int:
    options = _options()
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    outcomes = []
    for name in options.backends:
        tell(f"{name}, --seed {options.seed}")
        with _backend(name) as backend:
            outcome = storm.run(
                backend,
                executions=options.executions,
                faults_of_a_kind=options.faults,
                submit_seconds=options.submit_seconds or options.executions / 12,
                seed=options.seed,
                points=list(failpoints.failpoints()) if name == "servers" else (),
                tell=tell,
                logs_to=options.logs_to,
            )
        outcomes.append(outcome)
        sys.stdout.write(storm.summary(outcome) + "\n" + report.table(outcome) + "\n")
    if options.report is not None:
        report.write(options.report, "chaos", "\n\n".join(map(report.section, outcomes)))
    return int(any(outcome.violations or outcome.unreached for outcome in outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--faults", type=int, default=10, help="how often each kind happens")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run")
    parser.add_argument("--submit-seconds", type=float, help="over which time to submit")
    parser.add_argument(
        "--backends", nargs="+", choices=["servers", "embedded"], default=["servers"]
    )
    parser.add_argument("--logs-to", type=Path, help="folder for all logs of the installation")
    parser.add_argument("--report", type=Path, help="file whose table of the last run is replaced")
    return parser.parse_args()


@contextlib.contextmanager
def _backend(name: str):
    with contextlib.ExitStack() as stack:
        if name == "embedded":
            backend = Backend()
        else:
            backend = Backend(
                stack.enter_context(servers.PostgresServer(settings=DURABLE)),
                stack.enter_context(servers.RabbitServer()),
                stack.enter_context(servers.RedisServer()),
            )
        stack.callback(backend.close)
        yield backend


if __name__ == "__main__":
    raise SystemExit(main())
