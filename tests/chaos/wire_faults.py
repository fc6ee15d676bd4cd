"""What happens between a service and a server, and between two installations."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.chaos import neighbour
from tests.chaos.breaking import Breaking, Broken, NotNow
from tests.relays import Wire
from tests.scenarios.installation import Service

PACK = str(Path(__file__).parent / "pack")

CUT_SECONDS = (5.0, 15.0)
SILENT_SECONDS = (4.0, 10.0)

LAST_WORDS = (
    b"execution_timeout_monitor",
    b"'muster.check_timeouts'",
    b"'muster.check_heartbeats'",
)
"""In the statement by which overdue executions end, when their rows are locked; and in those with
which a check begins, so that it goes on with a time that is long over."""
MAINTENANCE_WITHIN_SECONDS = 10.0
VANISHED_SECONDS = 30.0
"""Longer than anything may be late."""


class WireFaults(Breaking):
    def cut_worker_from_broker(self) -> Broken:
        """From the broker only: it beats on, and hears of no work."""
        return self._cut("broker")

    def cut_worker_from_database(self) -> Broken:
        """From the database only: it hears of work, and can claim none."""
        return self._cut("database")

    def silent_broker(self) -> Broken:
        """Between it and one service connections stay open, and nothing comes through."""
        return self._hush("broker")

    def silent_database(self) -> Broken:
        """As `silent_broker`, in the middle of a statement or a transaction."""
        return self._hush("database")

    def silent_maintenance(self) -> Broken:
        """An executor vanishes in the transaction that ends what is overdue, with its locks, or in
        a check, and comes back after longer than anything may be late."""
        service = self._executor()
        if len(self.executors_at_work()) < 2:  # for so long nobody else would end anything
            raise NotNow
        wire = self._wire(service, "database")
        if not wire.hush_after(
            self._rng.choice(LAST_WORDS), within_seconds=MAINTENANCE_WITHIN_SECONDS
        ):
            raise NotNow
        self._for_a_while(VANISHED_SECONDS, wire.mend)
        return Broken(f"{service.name} for {VANISHED_SECONDS:.1f} s", seconds=VANISHED_SECONDS)

    def second_installation(self) -> Broken:
        """Comes, works and goes beside all else."""

        def visit() -> None:
            ends = neighbour.visit(self.muster, pack=PACK)
            self.neighbours.update(ends)

        self._mending.append(threading.Thread(target=visit, daemon=True))
        self._mending[-1].start()
        return Broken()

    def _cut(self, server: str) -> Broken:
        worker, seconds = self._worker(), self._rng.uniform(*CUT_SECONDS)
        wire = self._wire(worker, server)
        wire.cut()
        self._for_a_while(seconds, wire.mend)
        detail = f"{worker.name} for {seconds:.1f} s"
        return Broken(detail, frozenset({worker.name}), seconds)

    def _hush(self, server: str) -> Broken:
        is_worker = self._rng.random() < 0.5
        service = self._worker() if is_worker else self._executor()
        seconds = self._rng.uniform(*SILENT_SECONDS)
        wire = self._wire(service, server)
        wire.hush()
        self._for_a_while(seconds, wire.mend)
        workers = frozenset({service.name}) if is_worker else frozenset()
        return Broken(f"{service.name} for {seconds:.1f} s", workers, seconds)

    def _wire(self, service: Service, server: str) -> Wire:
        assert self.network is not None
        return self.network.wire(service.name, server)
