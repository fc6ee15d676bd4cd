"""The file: one SQLite database in WAL mode, and a lock file beside it.

The lock file carries two kinds of byte locks, which the kernel drops when a process dies:

- byte 0 is the writers' mutex, taken before `BEGIN IMMEDIATE`. SQLite's own wait polls, with sleeps
  of up to 100 ms, so a busy process starves all that sleep; here the kernel wakes the next writer
  as soon as the file is free.
- byte n is locked by connection n (an *owner*) for as long as it lives. A process that can lock the
  byte of another owner knows that it is dead, and gives its messages back.

A process has one `Store` for a file, shared by its threads and created again after a fork.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from amqp.exceptions import RecoverableConnectionError

from orchestrator.sqlitemq import routing
from orchestrator.sqlitemq.wake import Bell

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE topology (version INTEGER NOT NULL);
INSERT INTO topology VALUES (1);

CREATE TABLE owner (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL);

CREATE TABLE exchange (
    name TEXT PRIMARY KEY, type TEXT NOT NULL, durable INTEGER NOT NULL,
    auto_delete INTEGER NOT NULL, arguments TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO exchange VALUES
    ('amq.direct', 'direct', 1, 0, '{}'),
    ('amq.topic', 'topic', 1, 0, '{}'),
    ('amq.fanout', 'fanout', 1, 0, '{}');

CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, durable INTEGER NOT NULL,
    exclusive INTEGER NOT NULL, auto_delete INTEGER NOT NULL, owner INTEGER,
    arguments TEXT NOT NULL, expires_seconds REAL, used_at REAL NOT NULL
);

CREATE TABLE binding (
    exchange TEXT NOT NULL, routing_key TEXT NOT NULL, queue_id INTEGER NOT NULL,
    PRIMARY KEY (exchange, routing_key, queue_id)
) WITHOUT ROWID;
CREATE INDEX binding_of_queue ON binding (queue_id);

CREATE TABLE consumer (
    id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, owner INTEGER NOT NULL, address TEXT NOT NULL
);

-- owner is the connection that holds the message unacknowledged; NULL is ready. returns counts how
-- often it was given back; priority is 0 in a queue without x-max-priority
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue_id INTEGER NOT NULL, owner INTEGER,
    expires_at REAL, returns INTEGER NOT NULL DEFAULT 0,
    exchange TEXT NOT NULL, routing_key TEXT NOT NULL, properties TEXT NOT NULL, body,
    priority INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX message_ready ON message (queue_id, priority DESC, id) WHERE owner IS NULL;
CREATE INDEX message_held ON message (owner) WHERE owner IS NOT NULL;
CREATE INDEX message_expiry ON message (expires_at) WHERE owner IS NULL AND expires_at IS NOT NULL;
"""

FROM_VERSION_1 = """
ALTER TABLE message RENAME COLUMN redelivered TO returns;
ALTER TABLE message ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
DROP INDEX message_ready;
CREATE INDEX message_ready ON message (queue_id, priority DESC, id) WHERE owner IS NULL;
"""

WRITERS_MUTEX = 0
NO_FILE = -1
EXTERNAL_LOCK_SECONDS = 5.0  # a wait only for outside programs (a backup, the sqlite3 shell)


class BrokerFileError(RecoverableConnectionError):
    """The broker's file cannot be used; the connection is lost and must be opened again."""


class Store:
    """One process's access to the file. Every method may be called from any thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = os.getpid()
        self.owners: set[int] = set()
        #: owners whose connection was garbage-collected unclosed; reaped like the dead
        self.abandoned: list[int] = []
        #: grows when the file had to be opened again: older connections are lost
        self.generation = 0
        self.next_expiry_check_at = 0.0
        self.next_reap_at = 0.0
        self._lock = threading.RLock()
        self._depth = 0
        self._writes = 0
        self._broken = False
        self._to_wake: dict[str, None] = {}
        self._lock_fd = NO_FILE
        self._open()
        self._bell = Bell()

    @property
    def is_broken(self) -> bool:
        return self._broken

    # ---- opening and closing ----

    def _open(self) -> None:
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            # messages may hold private data
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._lock_fd = os.open(
                f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise BrokerFileError(f"cannot open the broker file {self.path}: {error}") from error
        self._inode = os.stat(self.path).st_ino
        self._topology = routing.Topology(version=-1)
        fcntl.lockf(self._lock_fd, fcntl.LOCK_EX, 1, WRITERS_MUTEX)
        try:
            self._db = self._connect()
        except sqlite3.Error as error:
            self._close_lock_file()
            raise BrokerFileError(f"cannot open the broker file {self.path}: {error}") from error
        except BrokerFileError:
            self._close_lock_file()
            raise
        fcntl.lockf(self._lock_fd, fcntl.LOCK_UN, 1, WRITERS_MUTEX)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path,
            timeout=EXTERNAL_LOCK_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            db.execute("PRAGMA journal_mode = WAL")
            # a power cut may lose the last commits, a dying process loses none
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA journal_size_limit = 67108864")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            script = {0: SCHEMA, 1: FROM_VERSION_1}.get(version)
            if script is not None:
                db.executescript(f"BEGIN; {script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            elif version != SCHEMA_VERSION:
                raise BrokerFileError(
                    f"the broker file {self.path} has format {version}, this release reads "
                    f"format {SCHEMA_VERSION}: finish its work with the old release, then remove it"
                )
        except BaseException:
            db.close()
            raise
        return db

    def _reopen(self) -> None:
        """Open the file again. Every owner of this process is lost: its lock goes with the
        descriptor."""
        self.generation += 1
        self.owners.clear()
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._close_lock_file()
        self._open()
        self._broken = False

    def close(self) -> None:
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._close_lock_file()
            self._bell.close()

    def _close_lock_file(self) -> None:
        fd, self._lock_fd = self._lock_fd, NO_FILE  # its number may soon be used for another file
        if fd != NO_FILE:
            os.close(fd)

    # ---- reading and writing ----

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything inside at once; nested calls join the outermost.

        Keep it short: all writers of the file wait for it.
        """
        with self._lock:
            if self._depth:
                yield self._db
                return
            with self._reporting_errors():
                fcntl.lockf(self._lock_fd, fcntl.LOCK_EX, 1, WRITERS_MUTEX)
                self._depth = 1
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                    try:
                        yield self._db
                        self._db.execute("COMMIT")
                    except BaseException:
                        self._to_wake.clear()
                        with contextlib.suppress(sqlite3.Error):
                            self._db.execute("ROLLBACK")
                        raise
                finally:
                    self._depth = 0
                    fcntl.lockf(self._lock_fd, fcntl.LOCK_UN, 1, WRITERS_MUTEX)
                    self._writes += 1
            to_wake = list(self._to_wake)
            self._to_wake.clear()
        self._bell.ring(to_wake)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._reporting_errors():
            return self._db.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._broken = True
            raise BrokerFileError(f"the broker file {self.path} failed: {error}") from error

    def changes(self) -> tuple[int, int]:
        """A token that stays equal until any process, this one or another, writes."""
        with self._lock, self._reporting_errors():
            # cheap: it reads a counter in shared memory, which changes only when others commit
            return self._db.execute("PRAGMA data_version").fetchone()[0], self._writes

    def check_file_is_ours(self) -> None:
        """Raise if the file was removed or replaced: we would never see the messages of others."""
        try:
            replaced = os.stat(self.path).st_ino != self._inode
        except OSError:
            replaced = True
        if replaced:
            self._broken = True
            raise BrokerFileError(f"the broker file {self.path} was removed or replaced")

    # ---- topology ----

    def topology(self) -> routing.Topology:
        """The present declarations; read again only when they have changed."""
        with self._lock, self._reporting_errors():
            (version,) = self._db.execute("SELECT version FROM topology").fetchone()
            if version != self._topology.version:
                self._topology = routing.load(self._db, version)
            return self._topology

    def topology_changed(self) -> None:
        """Raise the version. Call inside the transaction that changed the topology."""
        self._db.execute("UPDATE topology SET version = version + 1")

    def wake(self, addresses: Iterable[str]) -> None:
        """Wake these consumers after the commit. Call inside the transaction."""
        self._to_wake.update(dict.fromkeys(addresses))

    # ---- owners ----

    def register_owner(self) -> int:
        with self._lock:
            if self._broken:
                self._reopen()
            with self.transaction() as db:
                insert = "INSERT INTO owner (pid) VALUES (?) RETURNING id"
                owner: int = db.execute(insert, (os.getpid(),)).fetchone()[0]
                # before the commit: no process may see the row while its byte is free
                fcntl.lockf(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, owner)
                self.owners.add(owner)
            return owner

    def forget_owner(self, owner: int) -> None:
        with self._lock:
            self.owners.discard(owner)
            with contextlib.suppress(OSError):
                fcntl.lockf(self._lock_fd, fcntl.LOCK_UN, 1, owner)

    def is_alive(self, owner: int) -> bool:
        with self._lock:
            if owner in self.owners:
                return True
            try:
                fcntl.lockf(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, owner)
            except OSError:
                return True
            fcntl.lockf(self._lock_fd, fcntl.LOCK_UN, 1, owner)
            return False

    # ---- forking ----

    def hold_still(self) -> None:
        """Keep all threads of this process out of SQLite until `go_on`."""
        self._lock.acquire()

    def go_on(self) -> None:
        self._lock.release()


_stores: dict[str, Store] = {}
_registry_lock = threading.RLock()
#: a forked child neither uses nor closes inherited stores: both would disturb its parent
_inherited: list[Store] = []


def connect(path: str) -> tuple[Store, int]:
    """Open the process's store for this file, with a new owner. Raises BrokerFileError."""
    with _registry_lock:
        store = _stores.get(path)
        if store is None:
            store = _stores[path] = Store(path)
        return store, store.register_owner()


def disconnect(store: Store, owner: int) -> None:
    """Remove an owner; the last one closes the file."""
    with _registry_lock:
        store.forget_owner(owner)
        if not store.owners and _stores.get(store.path) is store:
            del _stores[store.path]
            store.close()


def _before_fork() -> None:
    _registry_lock.acquire()
    for store in _stores.values():
        store.hold_still()


def _after_fork_in_parent() -> None:
    for store in _stores.values():
        store.go_on()
    _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _inherited.extend(_stores.values())
    _stores.clear()
    _registry_lock = threading.RLock()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
