"""The hub: gives each notification to the clients that want it, and may have it.

All of it runs in one event loop and waits for nothing. A client that is slow fills its own line,
and then is told of a gap; it keeps nobody waiting. The last notifications stay in a ring, for
clients that come back.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

from django.conf import settings

from orchestrator.core.errors import MusterError
from orchestrator.notifications import filters
from orchestrator.notifications.filters import Filter, Key
from orchestrator.notifications.notification import Notification
from workers.notifier.credentials import Credential, Credentials

RING = 10_000
LINE = 1_000
LONGEST_SEQ = 18
"""Digits; a longer number is no number of ours."""
MOST_CONNECTIONS = 10
"""Of one identity."""
LINGER_SECONDS = 60.0
"""After the last client left, the hub goes on for so long, as it may come back."""


class NoRoom(MusterError):
    """No more clients are admitted."""


class Item(NamedTuple):
    """A notification with its number here. Its text is made once, for all clients."""

    seq: int
    one: Notification
    text: str


class Client:
    """One connection: its filters, and the line of what it is still to be sent."""

    def __init__(self, credential: Credential) -> None:
        self.credential, self.identity = credential, credential.identity
        self.filters: dict[str, Filter] = {}
        self.since: dict[str, int] = {}
        """After which notification each filter got what it wants, by its name."""
        self.line: deque[Item] = deque()
        self._room = LINE
        self.has_gap = False
        self.is_closed = False
        self.why_closed = ""
        self._is_due = asyncio.Event()

    def wants(self, one: Notification) -> bool:
        return any(each.matches(one) for each in self.filters.values())

    def put(self, item: Item) -> bool:
        """Put it in the line; returns False if that is full, or what the client may see is not
        known: then it has a gap."""
        if len(self.line) >= self._room or self.credential.is_stale:
            return self.miss()
        self.line.append(item)
        self._is_due.set()
        return True

    def put_missed(self, items: Sequence[Item]) -> None:
        """Put in the line what it missed while it was away. That says nothing about how fast it
        reads, so it takes no room from what comes now."""
        self._room += len(items)
        self.line.extend(items)
        self._is_due.set()

    def was_sent(self, item: Item, *, but_for: str) -> bool:
        """Return True if another filter than this one has wanted it in its time."""
        return any(
            item.seq > self.since[name] and each.matches(item.one)
            for name, each in self.filters.items()
            if name != but_for
        )

    def miss(self) -> bool:
        """Note a gap. What is in the line came before it and is not sent: the client reads all of
        it again anyway."""
        self.line.clear()
        self.has_gap = True
        self._is_due.set()
        return False

    def close(self, why: str) -> None:
        self.is_closed, self.why_closed = True, why
        self._is_due.set()

    async def take(self, *, within_seconds: float) -> tuple[bool, list[Item]]:
        """Wait for what is due; returns whether there was a gap before, and what to send. Nothing
        if the time ran out."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._is_due.wait()
        except TimeoutError:
            return False, []
        self._is_due.clear()
        had_gap, items = self.has_gap, list(self.line)
        self.has_gap, self._room = False, LINE
        self.line.clear()
        return had_gap, items


class Hub:
    """The clients of one process."""

    def __init__(self) -> None:
        self.credentials = Credentials()
        self.sent = self.gaps = 0
        """Since they were last counted."""
        self._clients: dict[Client, set[Key]] = {}
        self._by_key: dict[Key, set[Client]] = {}
        self._connections: Counter[str] = Counter()
        self._left_at = float("-inf")
        self.begin()

    def begin(self) -> None:
        """Begin a new ring: what was before cannot be resumed."""
        self.name = uuid4().hex[:12]
        self.seq = 0
        self._ring: deque[Item] = deque(maxlen=RING)
        for client in self._clients:
            client.since = dict.fromkeys(client.since, 0)

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def wanted(self) -> int:
        """The number of clients that wait; 1 for a while after the last has left."""
        if not self._clients and time.monotonic() - self._left_at < LINGER_SECONDS:
            return 1
        return len(self._clients)

    # --- clients come and go ---------------------------------------------------------------------

    def join(self, credential: Credential) -> Client:
        """Admit a client whose credential is good. Raises NoRoom."""
        limit = settings.MUSTER.stream_clients
        if len(self._clients) >= limit:
            raise NoRoom(f"This notifier has {limit} clients already (MUSTER_STREAM_CLIENTS)")
        if self._connections[credential.identity] >= MOST_CONNECTIONS:
            raise NoRoom(f"{credential.identity} has {MOST_CONNECTIONS} connections already")
        client = Client(self.credentials.take(credential))
        self._connections[client.identity] += 1
        self._clients[client] = set()
        return client

    def leave(self, client: Client) -> None:
        if client not in self._clients:
            return
        for name in list(client.filters):
            self.unsubscribe(client, name)
        del self._clients[client]
        self._connections[client.identity] -= 1
        if not self._connections[client.identity]:
            del self._connections[client.identity]
        self.credentials.drop(client.credential)
        self._left_at = time.monotonic()

    def subscribe(self, client: Client, name: str, wanted: Filter) -> None:
        """Add a filter under a name. Raises filters.WrongFilter if there are too many."""
        others = (each for key, each in client.filters.items() if key != name)
        if sum(each.number for each in others) + wanted.number > filters.MOST:
            raise filters.WrongFilter(f"Expected at most {filters.MOST} filters")
        client.filters[name], client.since[name] = wanted, self.seq
        self._index(client)

    def unsubscribe(self, client: Client, name: str) -> bool:
        """Remove a filter; returns False if there is none of this name."""
        is_known = client.filters.pop(name, None) is not None
        client.since.pop(name, None)
        self._index(client)
        return is_known

    def _index(self, client: Client) -> None:
        wanted = {key for each in client.filters.values() for key in each.found_under()}
        known = self._clients[client]
        for key in wanted - known:
            self._by_key.setdefault(key, set()).add(client)
        for key in known - wanted:
            self._by_key[key].discard(client)
            if not self._by_key[key]:
                del self._by_key[key]
        self._clients[client] = wanted

    def resume(self, client: Client, name: str, after: str) -> None:
        """Put in a client's line what the filter of this name wants of what came after this id,
        `<hub>:<seq>`; a gap if that is not known any more."""
        first = self._ring[0].seq if self._ring else self.seq + 1
        seq = self._seq_of(after)
        if not first - 1 <= seq <= self.seq or client.credential.is_stale:
            self._missed(client)
            return
        wanted = client.filters[name]
        missed = [
            item
            for item in itertools.islice(self._ring, seq - first + 1, None)
            if wanted.matches(item.one)
            and client.credential.may_see(item.one)
            and not client.was_sent(item, but_for=name)
        ]
        client.since[name] = seq
        client.put_missed(missed)
        self.sent += len(missed)

    def _seq_of(self, after: str) -> int:
        """The number in an id; -1 if it is none of this hub."""
        hub, _, seq = after.partition(":")
        is_number = seq.isascii() and seq.isdecimal() and len(seq) <= LONGEST_SEQ
        return int(seq) if hub == self.name and is_number else -1

    def close(self, why: str) -> None:
        """Let all clients go."""
        for client in self._clients:
            client.close(why)

    def close_refused(self) -> None:
        """Let those go whose credential is no longer good."""
        for client in self._clients:
            if client.credential.is_refused:
                client.close("the credential is no longer good")

    # --- notifications ---------------------------------------------------------------------------

    def publish(self, told: Iterable[Notification]) -> None:
        for one in told:
            self.seq += 1
            item = Item(self.seq, one, one.as_json(self.seq))
            self._ring.append(item)
            for client in self._candidates(one):
                self._offer(client, item)

    def _candidates(self, one: Notification) -> Iterator[Client]:
        """Each client with a filter that may match."""
        groups = [group for key in filters.keys_of(one) if (group := self._by_key.get(key))]
        yield from groups[0] if len(groups) == 1 else set().union(*groups)

    def _offer(self, client: Client, item: Item) -> None:
        if not client.wants(item.one) or client.is_closed:
            return
        if not client.credential.may_see(item.one):
            return
        if client.put(item):
            self.sent += 1
        else:
            self.gaps += 1

    def _missed(self, client: Client) -> None:
        client.miss()
        self.gaps += 1

    def miss_all(self) -> None:
        """All clients that want something may have missed it."""
        for client in self._clients:
            if client.filters:
                self._missed(client)

    def taken_counts(self) -> tuple[int, int]:
        """The number of notifications that were sent, and of gaps, since the last call."""
        counts = self.sent, self.gaps
        self.sent = self.gaps = 0
        return counts


def last_id(hub: Hub, items: Sequence[Item]) -> str:
    """The id from which a client resumes after these."""
    return f"{hub.name}:{items[-1].seq if items else hub.seq}"
