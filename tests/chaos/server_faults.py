"""What happens to the broker, the database and Redis."""

from __future__ import annotations

import contextlib
import time
from typing import LiteralString

import psycopg
from psycopg import sql

from tests import servers
from tests.chaos import evidence
from tests.chaos.breaking import Breaking, Broken, NotNow

CLOCK_STEP_SECONDS = 600.0
BETWEEN_STEPS_SECONDS = 2.0
ENOUGH_SESSIONS = 1_000

LOW_WATERMARK = "vm_memory_monitor:set_vm_memory_high_watermark(0.00001)."
USUAL_WATERMARK = "vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1073741824})."

ITS_SESSIONS: LiteralString = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = %s AND pid <> pg_backend_pid()"
)
OVERDUE: LiteralString = (
    "SELECT id FROM orchestrator_execution WHERE ended_at IS NULL AND id = %s "
    "FOR UPDATE SKIP LOCKED"
)
OTHERS: LiteralString = (
    "SELECT id FROM orchestrator_execution WHERE ended_at IS NULL AND id <> ALL(%s::uuid[]) "
    "ORDER BY deadline_at LIMIT 2 FOR UPDATE SKIP LOCKED"
)
HELD_SECONDS, LONG_HELD_SECONDS = 8.0, 28.0
"""In turns; the longer one is longer than anything may be late."""

BECOME_OVERDUE = 4
"""Executions that are accepted for nobody, so that they must be ended while one is held."""


class ServerFaults(Breaking):
    # ---- broker ----

    def stop_broker(self) -> Broken:
        self._rabbit.stop()
        return self._start_after_pause(self._rabbit)

    def kill_broker(self) -> Broken:
        self._rabbit.kill()
        return self._start_after_pause(self._rabbit)

    def long_broker_outage(self) -> Broken:
        """Longer than any message lives."""
        ttl_seconds = self.terms.queue_ttl_seconds
        self._rabbit.stop()
        return self._start_after_pause(self._rabbit, ttl_seconds + 2, ttl_seconds + 6)

    def freeze_broker(self) -> Broken:
        """SIGSTOP: it takes connections and answers nothing."""
        self._rabbit.pause()
        try:
            seconds = self._pause(4, 14)
        finally:
            self._rabbit.resume()
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def broker_memory_alarm(self) -> Broken:
        """It takes no message from anybody until it has memory again."""
        self._rabbit.control("eval", LOW_WATERMARK)
        try:
            seconds = self._pause(3, 8)
        finally:
            self._rabbit.control("eval", USUAL_WATERMARK)
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def close_all_connections(self) -> Broken:
        host = evidence.virtual_host(self.muster)
        self._rabbit.control("close_all_connections", "--vhost", host, "chaos")
        return Broken(workers=self.everybody)

    # ---- database ----

    def restart_database(self) -> Broken:
        how = self._rng.choice([self._postgres.stop, self._postgres.kill])
        with self._outage():
            how()
            broken = self._start_after_pause(self._postgres)
        return Broken(f"{how.__name__}, {broken.detail}", self.everybody)

    def freeze_database(self) -> Broken:
        """SIGSTOP: sessions stay open and nothing is answered."""
        with self._outage():
            self._postgres.pause()
            try:
                seconds = self._pause(2, 8)
            finally:
                self._postgres.resume()
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def read_only_database(self) -> Broken:
        """As a standby that was not promoted: it answers, and takes nothing."""
        with self._outage(), psycopg.connect(self._postgres.url, autocommit=True) as session:
            name = sql.Identifier(self._database_name)
            setting = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
            session.execute(setting.format(name))
            session.execute(ITS_SESSIONS, [self._database_name])
            try:
                seconds = self._pause(2, 6)
            finally:
                setting = sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only")
                session.execute(setting.format(name))
                session.execute(ITS_SESSIONS, [self._database_name])
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def full_database(self) -> Broken:
        """No byte is left on its disk; it may end of that."""
        with self._outage():
            try:
                self._postgres.fill_disk()
                seconds = self._pause(2, 6)
            finally:
                self._postgres.free_disk()
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def no_free_connection(self) -> Broken:
        """Somebody else has all of them, and the services lose theirs."""
        seconds = self._rng.uniform(2, 6)
        until = time.monotonic() + seconds
        with contextlib.ExitStack() as stack, self._outage():
            first = psycopg.connect(self._postgres.url, autocommit=True)
            stack.callback(first.close)
            self._take_sessions(stack)
            first.execute(ITS_SESSIONS, [self._database_name])
            while time.monotonic() < until and not self._over.wait(0.02):
                self._take_sessions(stack)
        return Broken(f"for {seconds:.1f} s", self.everybody)

    def hold_row_locks(self) -> Broken:
        """Somebody holds rows that are open, one of them overdue while others are, too."""
        earlier = sum(fault.kind == "hold row locks" for fault in self.faults)
        seconds = HELD_SECONDS if earlier % 2 else LONG_HELD_SECONDS
        # they wait for a worker that there is not, so that no message can end them either
        asked = {"worker_selector": {"wanted": "nobody"}, "deadline_seconds": 4}
        ids = self._submit(BECOME_OVERDUE, "chaos.again", 0.1, **asked)
        session = psycopg.connect(self.database.url, connect_timeout=5)
        held = [*session.execute(OVERDUE, ids[:1]), *session.execute(OTHERS, [ids])]
        if not held:
            session.close()
            raise NotNow
        self._for_a_while(seconds, session.close)
        executions = frozenset(str(id) for (id,) in held)
        return Broken(f"{len(held)} for {seconds:.1f} s", frozenset(), seconds, executions)

    def step_clock_forward(self) -> Broken:
        return self._step_clock(CLOCK_STEP_SECONDS)

    def step_clock_back(self) -> Broken:
        return self._step_clock(-CLOCK_STEP_SECONDS)

    def _step_clock(self, seconds: float) -> Broken:
        """Nobody can tell a clock that was set and set back within a second from one that was not:
        each process asks it once a second."""
        with self._stepping:
            if steps := self.database.clock_steps:
                time.sleep(max(0.0, steps[-1].at + BETWEEN_STEPS_SECONDS - time.time()))
            offset = self.database.offset_at(time.time()) + seconds
            self._postgres.step_clock(offset)
            self.database.note_clock_step(offset)
        return Broken(f"by {seconds:+.0f} s, now off by {offset:+.0f} s", self.everybody)

    def _take_sessions(self, stack: contextlib.ExitStack) -> None:
        """All that are free."""
        with contextlib.suppress(psycopg.OperationalError):
            for _ in range(ENOUGH_SESSIONS):
                session = psycopg.connect(self._postgres.url, connect_timeout=2)
                stack.callback(session.close)

    # ---- Redis ----

    def cut_redis(self) -> Broken:
        """Stopped, killed, or alive and deaf, which takes the longest to notice."""
        redis = self.muster.backend.redis
        assert redis is not None
        how = self._rng.choice([redis.stop, redis.kill, redis.pause])
        how()
        try:
            broken = self._start_after_pause(redis)
        finally:
            redis.resume()
        return Broken(f"{how.__name__}, {broken.detail}")

    # ---- for all of them ----

    @property
    def _rabbit(self) -> servers.RabbitServer:
        assert self.muster.backend.rabbit is not None
        return self.muster.backend.rabbit

    @property
    def _postgres(self) -> servers.PostgresServer:
        assert self.muster.backend.postgres is not None
        return self.muster.backend.postgres

    @property
    def _database_name(self) -> str:
        return self.muster.environment["DATABASE_URL"].rpartition("/")[2]

    def _start_after_pause(
        self, server: servers.Server, shortest: float = 0.5, longest: float = 3.0
    ) -> Broken:
        try:
            seconds = self._pause(shortest, longest)
        finally:
            server.start()
        return Broken(f"down for {seconds:.1f} s", self.everybody)
