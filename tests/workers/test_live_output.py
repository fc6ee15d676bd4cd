"""What an action prints reaches the database while it runs: bounded, in order, without secrets."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connections

from orchestrator.core import live_output
from orchestrator.core.live_output import CHUNK_BYTES, KEPT_BYTES, Piece
from orchestrator.core.models import OutputChunk
from tests.workers.helpers import python, sh
from workers import child, hiding
from workers.agent import Agent
from workers.live_output import DATAGRAM_BYTES, LiveOutput, Tail
from workers.runtimes import live
from workers.runtimes.live import HEADER, Live

SECRET = "sk_live_0123456789"
EXECUTION = uuid4()


@pytest.fixture
def way() -> Iterator[int]:
    """The parent's end of the socket."""
    receiver = live.connect()
    yield receiver
    os.close(receiver)
    os.close(live._ways.pop())


def sent(way: int) -> list[tuple[int, bytes]]:
    """Offsets and contents of what has come."""
    messages: list[tuple[int, bytes]] = []
    while True:
        try:
            datagram = os.read(way, DATAGRAM_BYTES)
        except BlockingIOError:
            return messages
        messages.append((HEADER.unpack_from(datagram)[3], datagram[HEADER.size :]))


def begun(seconds_ago: float = 60.0) -> Live:
    begun_at = time.monotonic() - seconds_ago
    return Live(live._ways[0], EXECUTION, 1, "stdout", begun_at=begun_at)


# --- from the process that launches an action ----------------------------------------------------


def test_output_is_sent_at_most_once_a_second(way: int) -> None:
    stream = begun()
    now = time.monotonic()
    assert stream.due_at == math.inf
    stream.feed(b"one ")
    stream.send(now)
    stream.feed(b"two ")
    stream.send(now + 0.5)
    stream.feed(b"three")
    stream.send(now + 1.0)
    assert sent(way) == [(0, b"one "), (4, b"two three")]


def test_execution_of_less_than_a_second_sends_nothing(way: int) -> None:
    stream = begun(seconds_ago=0)
    stream.feed(b"short")
    stream.send(time.monotonic())
    stream.end()
    assert sent(way) == []


def test_secret_that_comes_in_two_seconds_is_masked(way: int) -> None:
    with hiding.of([SECRET]):
        stream = begun()
        now = time.monotonic()
        stream.feed(b"before " + SECRET[:8].encode())
        stream.send(now)
        stream.feed(SECRET[8:].encode() + b" after")
        stream.send(now + 1)
        stream.end()
    assert b"".join(content for _, content in sent(way)) == b"before *** after"


def test_rest_of_a_secret_whose_beginning_was_dropped_is_not_sent(way: int) -> None:
    # the flood drops all but the newest bytes, and cuts the secret in two at each of its places
    for place in range(1, len(SECRET)):
        with hiding.of([SECRET]):
            stream = begun()
            rest = SECRET[place:].encode()
            stream.feed(SECRET[:place].encode())
            stream.feed(rest + b"." * (KEPT_BYTES - len(rest)))
            stream.send(time.monotonic())
            stream.end()
        messages = sent(way)
        content = b"".join(content for _, content in messages)
        assert rest not in content or len(rest) < 3
        assert content.strip(b".") == b""
        offset, last = messages[-1]
        assert offset + len(last) == len(SECRET) + KEPT_BYTES - len(rest)


def test_flood_costs_bounded_memory_and_a_bounded_message(way: int) -> None:
    stream = begun()
    for _ in range(1_000):
        stream.feed(b"x" * 65_536)
        assert len(stream._raw) <= KEPT_BYTES
    stream.send(time.monotonic())
    messages = sent(way)
    assert sum(len(content) for _, content in messages) == KEPT_BYTES
    assert messages[0][0] == 1_000 * 65_536 - KEPT_BYTES


def test_parent_that_takes_nothing_is_not_waited_for(way: int) -> None:
    stream = begun()
    now = time.monotonic()
    for second in range(100):
        stream.feed(b"y" * KEPT_BYTES)
        stream.send(now + second)
    assert len(stream._unsent) <= KEPT_BYTES
    assert time.monotonic() - now < 30
    offsets = [(offset, offset + len(content)) for offset, content in sent(way)]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(offsets))
    stream.end()
    assert sum(map(len, sent(way)[-1][1:])) > 0


@pytest.mark.parametrize("kind", ["command", "function"])
def test_action_is_heard_while_it_runs(way: int, kind: str) -> None:
    if kind == "command":
        asked = sh("echo first; sleep 1.3; echo last", secrets=(SECRET,))
    else:
        asked = python("print_slowly", secrets=(SECRET,), parameters={"lines": ["first", "last"]})
    outcome = child.run(asked)
    assert outcome.event == "complete", outcome
    messages = sent(way)
    assert len(messages) >= 1
    assert b"".join(content for _, content in messages) == b"first\nlast\n"


# --- the parent ----------------------------------------------------------------------------------


def test_tail_keeps_the_newest_while_nothing_can_be_written() -> None:
    tail = Tail((EXECUTION, 1), "stdout")
    for number in range(100):
        tail.add(number * 10_000, b"z" * 10_000)
    pieces = tail.take()
    assert KEPT_BYTES <= sum(len(piece.content) for piece in pieces) < KEPT_BYTES + 10_000
    assert pieces[-1].offset + len(pieces[-1].content) == 1_000_000
    assert all(len(piece.content) <= CHUNK_BYTES for piece in pieces)


def test_tail_puts_neighbours_together_and_keeps_gaps() -> None:
    tail = Tail((EXECUTION, 1), "stderr")
    for offset, content in [(0, b"ab"), (2, b"cd"), (10, b"ef")]:
        tail.add(offset, content)
    assert [(each.offset, each.content) for each in tail.take()] == [(0, b"abcd"), (10, b"ef")]


def test_what_could_not_be_written_is_kept_in_its_order_and_bounded() -> None:
    tail = Tail((EXECUTION, 1), "stdout")
    tail.add(0, b"ab")
    pieces = tail.take()
    tail.add(2, b"cd")  # it came meanwhile
    tail.put_back(pieces)
    assert [(each.offset, each.content) for each in tail.take()] == [(0, b"abcd")]
    tail.put_back([Piece(EXECUTION, 1, "stdout", n * 30_000, b"z" * 30_000) for n in range(9)])
    kept = tail.take()
    assert sum(len(each.content) for each in kept) == 90_000
    assert kept[-1].offset + len(kept[-1].content) == 270_000


def fill(agent: Agent, key: tuple[UUID, int], *contents: bytes) -> None:
    """Send contents, as an action's launcher does."""
    stream = Live(live._ways[0], *key, "stdout", begun_at=time.monotonic() - 60)
    now = time.monotonic()
    for second, content in enumerate(contents):
        stream.feed(content)
        stream.send(now + second)
    agent.desk.in_hand.take([key])


@pytest.mark.usefixtures("database")
def test_output_is_written_before_the_end_is_recorded(agent: Agent) -> None:
    key = EXECUTION, 2
    fill(agent, key, b"all ", b"of it")
    agent.live_output.conclude([key])
    (chunk,) = OutputChunk.objects.of(*key)
    assert (chunk.stream, chunk.offset, bytes(chunk.content)) == ("stdout", 0, b"all of it")
    agent.live_output.conclude([key])
    assert OutputChunk.objects.count() == 1


@pytest.mark.usefixtures("database")
def test_only_the_newest_stays_in_the_database(agent: Agent) -> None:
    key = EXECUTION, 1
    for number in range(8):
        fill(agent, key, str(number).encode() * 30_000)
        agent.live_output.conclude([key])
        # each fill begins a stream anew, at 0
        tail = agent.live_output._tails[key]["stdout"]
        tail.add(30_000 * (number + 1), b"-" * 30_000)
        agent.live_output.conclude([key])
    kept = sum(len(chunk.content) for chunk in OutputChunk.objects.of(*key))
    assert kept <= KEPT_BYTES + 2 * CHUNK_BYTES


@pytest.mark.usefixtures("database")
def test_database_that_is_away_keeps_no_end_from_being_recorded(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = EXECUTION, 1
    fill(agent, key, b"kept")
    with monkeypatch.context() as away:
        away.setattr(live_output, "write", _away)
        agent.live_output.conclude([key])
    assert not OutputChunk.objects.exists()
    agent.live_output.conclude([key])
    assert OutputChunk.objects.of(*key).count() == 1


@pytest.mark.usefixtures("database")
def test_what_nobody_expects_keeps_no_end_from_being_recorded_and_ends_no_thread(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, output = (EXECUTION, 1), agent.live_output
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise SystemExit
        output._has_more.set()

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(live_output, "write", _fail)
    for loop in (output._write_for_ever, output.run):
        pauses.clear()
        fill(agent, key, b"lost")
        if loop == output.run:
            for _ in range(2):
                os.write(live._ways[0], b"no header")
        else:
            output._receive()
            output._has_more.set()
        with pytest.raises(SystemExit):
            loop()
        assert len(pauses) == 2
    os.write(live._ways[0], b"no header")
    output.conclude([key])
    fill(agent, key, b"lost")
    output.conclude([key])


@pytest.mark.usefixtures("database")
def test_a_long_execution_among_short_ones_is_written_each_second(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = agent.live_output
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        """In which short executions end."""
        pauses.append(seconds)
        if len(pauses) == 3:
            raise SystemExit
        fill(agent, (EXECUTION, 1), b"long")
        for attempt in range(2, 6):
            fill(agent, (EXECUTION, attempt), b"short")
            output.conclude([(EXECUTION, attempt)])
        output._has_more.set()

    monkeypatch.setattr(time, "sleep", pause)
    output._has_more.set()
    with pytest.raises(SystemExit):
        output._write_for_ever()
    assert all(0.5 < each <= 1.0 for each in pauses)
    assert OutputChunk.objects.of(EXECUTION, 1).count() == 1


@pytest.mark.usefixtures("database")
def test_socket_is_emptied_while_the_database_hangs(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    write = live_output.write

    def hang(*args: Any, **how: Any) -> None:
        hangs.set()
        assert goes_on.wait(30)
        write(*args, **how)

    monkeypatch.setattr(live_output, "write", hang)
    output, key = agent.live_output, (EXECUTION, 1)
    fill(agent, key, b"first")
    output._receive()
    writer = threading.Thread(target=_written_by, args=[output])
    writer.start()
    assert hangs.wait(30)
    monkeypatch.setattr(live_output, "write", write)
    way = live._ways[0]
    for offset in range(5, 3_000_000, CHUNK_BYTES):  # more than the socket holds
        os.write(way, HEADER.pack(EXECUTION.bytes, 1, 0, offset) + b"-" * CHUNK_BYTES)
        with output._lock:
            output._receive()
    goes_on.set()
    writer.join(30)
    output.conclude([key])
    last = OutputChunk.objects.of(*key).order_by("-offset")[0]
    assert last.end > 3_000_000


def _written_by(output: LiveOutput) -> None:
    try:
        output.write()
    finally:
        connections.close_all()


def _fail(*_: object, **__: object) -> None:
    raise ValueError("what nobody expects")


def _away(*_: object, **__: object) -> None:
    raise OperationalError("the server closed the connection")
