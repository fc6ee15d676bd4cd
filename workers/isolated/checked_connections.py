"""Connections of HTTP actions: to exactly the address that was checked, and within the deadline.

An httpcore network backend: every connection is made here, so redirects, a second address of the
same name and a name that changes its address are all checked. The layers above still see the name,
for the Host header, for TLS and for the certificate.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from orchestrator.core.errors import MusterError
from workers.isolated import addresses


class AddressRefused(MusterError):
    """The address is neither public nor allowed by MUSTER_HTTP_ALLOWED_NETWORKS."""


class Backend(httpcore.NetworkBackend):
    """Resolves, checks, and connects to what it checked. Everything ends at `deadline`, by
    `time.monotonic`: with a timeout of each read only, a slow server could go on for ever."""

    def __init__(self, *, allowed: tuple[addresses.Network, ...], deadline: float) -> None:
        self.allowed = allowed
        self.deadline = deadline
        self._below = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        error: Exception | None = None
        for address in self._permitted(host, port):
            try:
                stream = self._below.connect_tcp(
                    address, port, left(self.deadline), local_address, socket_options
                )
                return _Stream(stream, self.deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failure:
                error = failure
        raise error or httpcore.ConnectError(f"{host} has no address")

    def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        raise AddressRefused("An HTTP action reaches no socket of the worker's host.")

    def _permitted(self, host: str, port: int) -> list[str]:
        """The addresses of this host that may be reached. Raises AddressRefused if none may."""
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} has no address: {error}") from None
        hosts = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        permitted = [
            each
            for each in hosts
            if addresses.may_reach(ipaddress.ip_address(each), allowed=self.allowed)
        ]
        if hosts and not permitted:
            shown = host if host in hosts else f"{host} ({', '.join(hosts)})"
            raise AddressRefused(
                f"{shown} is no public address, and MUSTER_HTTP_ALLOWED_NETWORKS does not allow it."
            )
        return permitted


class _Stream(httpcore.NetworkStream):
    """A connection that ends at the deadline."""

    def __init__(self, below: httpcore.NetworkStream, deadline: float) -> None:
        self._below = below
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._below.read(max_bytes, left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._below.write(buffer, left(self._deadline))

    def close(self) -> None:
        self._below.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._below.start_tls(ssl_context, server_hostname, left(self._deadline))
        return _Stream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._below.get_extra_info(info)


def left(deadline: float) -> float:
    """The seconds until the deadline. Raises httpcore.ReadTimeout after it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise httpcore.ReadTimeout("the time limit was reached")
    return seconds


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Create the context once: reading the certificates of all authorities takes longer than a
    request."""
    return httpx.create_ssl_context(trust_env=False)


class Transport(httpx.BaseTransport):
    """A transport for httpx over connections of a Backend only: no proxy, no local socket."""

    def __init__(self, backend: Backend) -> None:
        self._pool = httpcore.ConnectionPool(ssl_context=_ssl_context(), network_backend=backend)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        content = request.stream
        assert isinstance(content, httpx.SyncByteStream)
        answer = self._pool.handle_request(
            httpcore.Request(
                request.method,
                url,
                headers=request.headers.raw,
                content=content,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Any:
        yield from self._stream

    def close(self) -> None:
        self._stream.close()
