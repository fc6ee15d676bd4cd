"""The body of a response, of which nothing beyond a limit is ever in memory.

httpx decompresses a whole piece before anybody can count it, and as many times as a header says: a
thousand bytes may become gigabytes. So Muster asks for gzip, which it reads itself, and for nothing
else.
"""

from __future__ import annotations

import zlib

import httpx

CHUNK_BYTES = 65_536
ACCEPTED = "gzip"
"""The value of the header Accept-Encoding."""
GZIP = ("gzip", "x-gzip")
PLAIN = ("", "identity")


class TooLarge(Exception):
    """The body has more bytes than it may have."""


def read(response: httpx.Response, most_bytes: int) -> bytes:
    """Read the body, decompressed. Raises TooLarge, and httpx.DecodingError."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in GZIP:
        return _unzipped(response, most_bytes)
    body = bytearray()
    for chunk in response.iter_raw(CHUNK_BYTES):
        if coding not in PLAIN:
            expected = f"expected Content-Encoding: {ACCEPTED}, or none"
            raise httpx.DecodingError(f"{expected}, found {coding:.40}")
        body += chunk
        if len(body) > most_bytes:
            raise TooLarge
    return bytes(body)


def _unzipped(response: httpx.Response, most_bytes: int) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    body, has_content = bytearray(), False
    for chunk in response.iter_raw(CHUNK_BYTES):
        has_content = True
        try:
            body += unzip.decompress(chunk, most_bytes - len(body) + 1)
        except zlib.error as error:
            raise httpx.DecodingError(f"the body is no gzip: {error}") from None
        if len(body) > most_bytes:
            raise TooLarge
    if has_content and not unzip.eof:
        raise httpx.DecodingError("the body ends in the middle of its gzip")
    return bytes(body)
