"""Reading output: from any place, across gaps, over attempts, to the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction

from orchestrator.core import live_output, retention
from orchestrator.core.api import logs
from orchestrator.core.live_output import Before, Follower, Piece
from orchestrator.core.models import Execution, OutputChunk
from tests.factories import NOW, make_execution
from tests.principals import ROOT

pytestmark = pytest.mark.usefixtures("database")


def write(execution: Execution, *pieces: tuple[int, str | bytes], **where: Any) -> None:
    known: dict[str, Any] = {"attempt": execution.attempt, "stream": "stdout"} | where
    live_output.write(
        [
            Piece(
                execution_id=execution.pk,
                offset=offset,
                content=content.encode() if isinstance(content, str) else content,
                **known,
            )
            for offset, content in pieces
        ],
        now=NOW,
    )


def read(execution: Execution, offset: int = 0, stream: str = "stdout") -> tuple[int, int, str]:
    part = live_output.read(execution, attempt=execution.attempt, stream=stream, offset=offset)
    return part.offset, part.dropped_bytes, part.text


def test_chunks_are_one_text_from_any_place() -> None:
    execution = make_execution("running")
    write(execution, (0, "abc"), (3, "def"), (6, "ghi"))
    assert read(execution) == (0, 0, "abcdefghi")
    assert read(execution, 4) == (4, 0, "efghi")
    assert read(execution, 9) == (9, 0, "")
    assert read(execution, stream="stderr") == (0, 0, "")


def test_gap_ends_a_part_and_is_counted_in_the_next() -> None:
    execution = make_execution("running")
    write(execution, (100, "abc"), (200, "xyz"))
    assert read(execution) == (100, 100, "abc")
    assert read(execution, 103) == (200, 97, "xyz")


def test_character_of_which_a_part_has_come_waits_for_the_rest() -> None:
    execution = make_execution("running")
    euro = "€".encode()
    write(execution, (0, b"5" + euro[:2]))
    assert read(execution) == (0, 0, "5")
    assert read(execution, 1) == (1, 0, "")
    write(execution, (3, euro[2:]))
    assert read(execution, 1) == (1, 0, "€")


def test_bytes_that_are_no_text_do_not_hold_up_the_end() -> None:
    execution = make_execution("completed")
    write(execution, (0, b"a\xe2"))
    assert read(execution) == (0, 0, "a")
    assert read(execution, 1) == (1, 0, "\N{REPLACEMENT CHARACTER}")
    assert read(execution, 2) == (2, 0, "")


def test_part_of_a_character_before_a_gap_does_not_hold_up_what_follows() -> None:
    execution = make_execution("running")
    write(execution, (0, b"a\xc3"), (100, "later"))
    assert read(execution) == (0, 0, "a")
    assert read(execution, 1) == (1, 0, "\N{REPLACEMENT CHARACTER}")
    assert read(execution, 2) == (100, 98, "later")
    part = live_output.newest(execution, stream="stdout", most_bytes=200)
    assert part is not None
    assert part.text == "later"


def test_long_output_comes_in_parts() -> None:
    execution = make_execution("running")
    size = live_output.CHUNK_BYTES
    write(execution, *((n * size, bytes([97 + n]) * size) for n in range(5)))
    offset, text = 0, ""
    while part := read(execution, offset)[2]:
        assert len(part) <= live_output.READ_BYTES
        text += part
        offset += len(part)
    assert text == "".join(chr(97 + n) * size for n in range(5))


def test_what_ran_too_briefly_for_a_chunk_is_read_from_its_result() -> None:
    execution = make_execution("completed", result={"stdout": "ünd", "stderr": ""})
    assert read(execution) == (0, 0, "ünd")
    assert read(execution, 3) == (3, 0, "d")
    assert read(execution, 4) == (4, 0, "")
    assert read(execution, stream="stderr") == (0, 0, "")


def test_chunks_are_read_rather_than_the_result() -> None:
    execution = make_execution("completed", result={"stdout": "the beginning", "stderr": "x"})
    write(execution, (500, "the end"))
    assert read(execution) == (500, 500, "the end")
    assert read(execution, stream="stderr") == (0, 0, "")


def test_same_piece_is_stored_once() -> None:
    execution = make_execution("running")
    for _ in range(2):
        write(execution, (0, "once"))
    (chunk,) = OutputChunk.objects.all()
    chunk.pk, chunk.stream = None, "stdlog"
    with pytest.raises(IntegrityError), transaction.atomic():
        chunk.save()


def test_only_what_is_before_the_place_is_forgotten() -> None:
    execution = make_execution("running")
    write(execution, (0, "abc"), (3, "def"))
    write(execution, (0, "other"), stream="stderr")
    live_output.forget([Before(execution.pk, execution.attempt, "stdout", 3)])
    assert sorted(OutputChunk.objects.values_list("stream", "offset")) == [
        ("stderr", 0),
        ("stdout", 3),
    ]


def test_newest_is_the_end_of_a_stream() -> None:
    execution = make_execution("running")
    write(execution, *((n * 1_000, f"{n:03}" + "." * 997) for n in range(40)))
    assert live_output.newest(execution, stream="stderr", most_bytes=2_500) is None
    part = live_output.newest(execution, stream="stdout", most_bytes=2_500)
    assert part is not None
    assert part.text.startswith("." * 500 + "038")
    assert part.next_offset == 40_000


def test_newest_of_many_small_chunks_is_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_output, "READ_CHUNKS", 4)
    execution = make_execution("running")
    write(execution, *((n, chr(97 + n)) for n in range(12)))
    for most, text in ((5, "hijkl"), (8, "efghijkl"), (12, "abcdefghijkl"), (99, "abcdefghijkl")):
        part = live_output.newest(execution, stream="stdout", most_bytes=most)
        assert part is not None
        assert (part.offset, part.text) == (12 - len(text), text)
    OutputChunk.objects.filter(offset=6).delete()
    part = live_output.newest(execution, stream="stdout", most_bytes=99)
    assert part is not None
    assert (part.offset, part.text) == (7, "hijkl")


# --- following -----------------------------------------------------------------------------------


def texts(follower: Follower) -> list[tuple[int, str, str]]:
    return [(part.attempt, part.stream, part.text) for part in follower.parts()]


def test_follower_reads_each_byte_once_and_ends_with_the_execution() -> None:
    execution = make_execution("running")
    follower = Follower(execution.pk)
    assert texts(follower) == []
    write(execution, (0, "one"))
    write(execution, (0, "bad"), stream="stderr")
    assert texts(follower) == [(1, "stdout", "one"), (1, "stderr", "bad")]
    write(execution, (3, "two"))
    assert texts(follower) == [(1, "stdout", "two")]
    assert not follower.is_over
    ended = make_execution("completed")
    write(ended, (0, "last"))
    other = Follower(ended.pk)
    assert texts(other) == [(1, "stdout", "last")]
    assert other.is_over


def test_follower_goes_on_with_the_next_attempt() -> None:
    execution = make_execution("running")
    follower = Follower(execution.pk)
    write(execution, (0, "first"))
    assert texts(follower) == [(1, "stdout", "first")]
    write(execution, (5, ", killed"))
    Execution.objects.filter(pk=execution.pk).update(attempt=2)
    write(execution, (0, "second"), attempt=2)
    assert texts(follower) == [(1, "stdout", ", killed"), (2, "stdout", "second")]
    only = Follower(execution.pk, attempt=1)
    assert texts(only) == [(1, "stdout", "first, killed")]
    assert only.is_over


def test_two_followers_read_the_same_and_one_goes_on_where_it_was() -> None:
    execution = make_execution("running")
    write(execution, (0, "one"))
    first, second = Follower(execution.pk), Follower(execution.pk)
    assert texts(first) == texts(second) == [(1, "stdout", "one")]
    write(execution, (3, "two"))
    third = Follower(execution.pk)
    assert third.resume(first.place)
    assert texts(third) == texts(first) == [(1, "stdout", "two")]
    for wrong in ("", "1", "1:2", "1:2:x", "1:-2:0", "1:2:3:4", "²:1:1", "1:" + "9" * 20 + ":0"):
        assert not third.resume(wrong)


def test_follower_of_what_is_removed_ends() -> None:
    follower = Follower(UUID(int=1))
    assert (texts(follower), follower.is_over) == ([], True)


# --- retention -----------------------------------------------------------------------------------


def test_output_goes_before_its_execution_and_that_of_open_ones_stays() -> None:
    old = NOW - timedelta(days=2)
    ended = make_execution("completed", now=old)
    running = make_execution("running", now=old)
    late = make_execution("completed", now=NOW)
    for execution in (ended, running, late):
        write(execution, (0, "x"))
    OutputChunk.objects.exclude(execution_id=late.pk).update(written_at=old)
    assert retention.prune(now=NOW) == {"output": 1}
    assert set(OutputChunk.objects.values_list("execution_id", flat=True)) == {running.pk, late.pk}
    assert Execution.objects.filter(pk=ended.pk).exists()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_follower_of_the_api_goes_on_after_the_database_was_restarted() -> None:
    execution = make_execution("running")
    write(execution, (0, "hello"))
    follower, reader = Follower(execution.pk), ROOT
    assert connection.connection is not None
    connection.connection.close()  # as seen from this process
    assert logs._look(follower, reader) == []
    (event,) = logs._look(follower, reader)
    assert "hello" in event
