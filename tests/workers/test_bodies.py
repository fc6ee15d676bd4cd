"""A body is read up to its limit, whatever it would become."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import httpx
import pytest

from workers.isolated import bodies


def answer(body: bytes, coding: str = "") -> httpx.Response:
    headers = {"content-encoding": coding} if coding else {}
    return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))


TEXT = gzip.compress(b"text", mtime=0)  # the time would be in the names of tests


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"text", ""),
        (b"text", "identity"),
        (TEXT, "gzip"),
        (TEXT, "X-GZIP"),
    ],
)
def test_body_is_read_plain_or_from_gzip(body: bytes, coding: str) -> None:
    assert bodies.read(answer(body, coding), 4) == b"text"
    with pytest.raises(bodies.TooLarge):
        bodies.read(answer(body, coding), 3)


def test_what_a_small_body_becomes_is_never_in_memory() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < bodies.CHUNK_BYTES, "it comes at once"
    tracemalloc.start()
    try:
        with pytest.raises(bodies.TooLarge):
            bodies.read(answer(bomb, "gzip"), 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "deflate", "zstd"])
def test_coding_that_nobody_asked_for_is_a_failure(coding: str) -> None:
    with pytest.raises(httpx.DecodingError, match="expected Content-Encoding: gzip"):
        bodies.read(answer(gzip.compress(gzip.compress(bytes(1_000))), coding), 1_000_000)
    assert bodies.read(answer(b"", coding), 4) == b"", "to HEAD"


@pytest.mark.parametrize("body", [b"no gzip", zlib.compress(b"x"), TEXT[:-1]])
def test_gzip_that_is_none_or_ends_early_is_a_failure(body: bytes) -> None:
    with pytest.raises(httpx.DecodingError):
        bodies.read(answer(body, "gzip"), 1_000)
    assert bodies.read(answer(b"", "gzip"), 4) == b""
