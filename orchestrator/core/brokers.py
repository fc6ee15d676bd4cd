"""Connections to brokers by alias: `default` is Muster's own, the others are those of gates.

`settings.BROKERS` has the URL of each, from `BROKER_URL` and `MUSTER_GATE_BROKERS`.
"""

from __future__ import annotations

import os
import re
import select
import ssl
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError

from orchestrator.core.errors import NotFound
from orchestrator.core.undecodable import UNDECODED as UNDECODED

DEFAULT = "default"
HOSTS = ";"
"""Between the URLs of the hosts of one broker."""

REST_SECONDS = 0.02
"""So long the rest of a message is waited for that has begun to come. What is there of it by then
is kept."""


class UnknownBroker(NotFound):
    """No broker has this alias."""


def aliases() -> list[str]:
    """All aliases, `default` first."""
    return [DEFAULT, *settings.GATE_BROKERS]


def url(alias: str = DEFAULT) -> str:
    """The URL of a broker, with its password; with several hosts, separated by `;`. Raises
    UnknownBroker."""
    if alias == DEFAULT:
        return str(settings.BROKER_URL)
    try:
        return str(settings.GATE_BROKERS[alias])
    except KeyError:
        known = ", ".join(aliases())
        raise UnknownBroker(
            f"broker {alias!r} is not in MUSTER_GATE_BROKERS: expected one of {known}"
        ) from None


def connection(alias: str = DEFAULT, *, limit_seconds: float | None = None) -> Connection:
    """Open a connection to a broker, with time limits so that a stalled broker is an error. The
    limit is the setting's if none is given. Of several hosts, the first to be tried is that to
    which this process connected last: one that is silent costs the limit. Raises UnknownBroker."""
    limit = limit_seconds or settings.MUSTER.publish_timeout_seconds
    last = _last_urls.get(alias)
    urls = sorted(url(alias).split(HOSTS), key=lambda each: each != last)
    return _Limited(
        HOSTS.join(urls),
        alias=alias,
        ssl=tls(alias),
        connect_timeout=limit,
        transport_options={"read_timeout": limit, "write_timeout": limit},
    )


_last_urls: dict[str, str] = {}
"""The URL to which this process connected last, by the alias of its broker."""


class _Limited(Connection):
    """A connection on which each wait for bytes has the limit of `read_timeout`. py-amqp gives that
    to the system, and in the middle of a frame it tries again whenever the system gives up."""

    def __init__(self, urls: str, *, alias: str, **options: Any) -> None:
        super().__init__(urls, **options)
        self._alias, self._url = alias, urls.partition(HOSTS)[0]

    def switch(self, conn_str: str) -> None:
        super().switch(conn_str)
        self._url = conn_str

    def _establish_connection(self) -> Any:
        made = super()._establish_connection()
        sock = getattr(made, "sock", None)
        if sock is not None:  # the embedded broker has none
            sock.settimeout((self.transport_options or {})["read_timeout"])
        _last_urls[self._alias] = self._url
        return made


def tls(alias: str = DEFAULT) -> dict[str, Any] | bool:
    """The TLS arguments of one connection, which adds the name that it connects to."""
    if not url(alias).startswith("amqps:"):
        return False
    return dict(settings.BROKER_TLS)


def ensure_connected(link: Connection) -> None:
    """Connect within the time limit, if not connected yet; of several hosts, each has that time.
    Raises the errors of the broker's library."""
    hosts = max(1, len(link.alt))
    limit_seconds = hosts * settings.MUSTER.publish_timeout_seconds
    link.ensure_connection(
        max_retries=max(1, hosts - 1), interval_start=0, timeout=int(limit_seconds) or 1
    )


def drain_come(link: Connection) -> None:
    """Handle one message that has come, without waiting for one. Raises TimeoutError if none has,
    and the errors of the broker's library.

    Not `drain_events(timeout=0)`: if half of a frame has come and its rest never does, py-amqp 5.4
    tries to read it for ever, with all of a processor.
    """
    sock = getattr(link.connection, "sock", None)
    if sock is None:  # the embedded broker has no frames
        link.drain_events(timeout=0)
        return
    if is_silent(link):
        raise TimeoutError
    link.drain_events(timeout=REST_SECONDS)


def is_silent(link: Connection) -> bool:
    """Return True if the broker has sent nothing that is not read yet: to publish then reads
    nothing, and waits for nothing. Never so with the embedded broker, where to publish is to
    commit."""
    sock = getattr(link.connection, "sock", None)
    if sock is None or sock.fileno() < 0:
        return False
    is_decrypted = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
    return not is_decrypted and not select.select([sock], [], [], 0)[0]


def pauses_seconds() -> Iterator[float]:
    """The pauses between attempts to reach the broker of a gate: each twice as long as the one
    before, up to the limit, without an end. A gate that stops trying is a lost queue."""
    pause_seconds: float = settings.MUSTER.gate_backoff_seconds
    while True:
        yield min(pause_seconds, settings.MUSTER.gate_max_backoff_seconds)
        pause_seconds = min(2 * pause_seconds, settings.MUSTER.gate_max_backoff_seconds)


@cache
def errors() -> tuple[type[Exception], ...]:
    """Errors of the broker's library when the broker is away, stalled or refuses."""
    link = Connection(settings.BROKER_URL)
    return (*link.connection_errors, *link.channel_errors, OSError, OperationalError)


# --- what is wrong, in one line -------------------------------------------------------------------


EXPIRED, NOT_YET = 10, 9
OTHER_NAME = {62, 63, 64}
"""OpenSSL's codes of why a certificate is refused: see `X509_STORE_CTX_get_error(3)`. The last are
of a host, an e-mail address, and an IP address."""

REFUSED_CLIENT = re.compile("ALERT_.*(HANDSHAKE_FAILURE|CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")
OLD_PROTOCOL = re.compile("PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|VERSION_TOO_LOW")

TLS_FILES = {
    "ca_certs": "MUSTER_BROKER_CA",
    "certfile": "MUSTER_BROKER_CERT",
    "keyfile": "MUSTER_BROKER_KEY",
}


def explain(error: BaseException, alias: str = DEFAULT) -> str:
    """One line about a connection that failed: where, what was expected and what was found."""
    while isinstance(error, OperationalError) and error.__cause__ is not None:
        error = error.__cause__
    return f"{place(alias)}: {_why(error, uses_tls=bool(tls(alias)))}"


def place(alias: str = DEFAULT) -> str:
    """The URL of a broker without user, password and options."""
    bare = re.sub(r"\?[^;]*", "", re.sub(r"//[^/;]*@", "//", url(alias)))
    return bare if alias == DEFAULT else f"{alias} ({bare})"


def _why(error: BaseException, *, uses_tls: bool) -> str:
    problem = next(file_problems(), "") if uses_tls and isinstance(error, OSError) else ""
    if problem:
        return problem
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_not_verified(error)
    text = (str(error) or repr(error)).splitlines()[0]
    if isinstance(error, ssl.SSLError):
        return _why_no_tls(error, text)
    if isinstance(error, ConnectionResetError) and not uses_tls:
        return f"{text}; a port for amqps:// does that to amqp://"
    return text


def _why_not_verified(error: ssl.SSLCertVerificationError) -> str:
    found = f"found: {error.verify_message}"
    if error.verify_code in OTHER_NAME:
        return f"expected a certificate with the host's name in it, {found}"
    if error.verify_code in (EXPIRED, NOT_YET):
        return f"expected a certificate that is valid now, {found}"
    authority = settings.BROKER_TLS.get("ca_certs")
    signer = f"MUSTER_BROKER_CA={authority}" if authority else "an authority of this host"
    return f"expected a certificate signed by {signer}, {found}"


def _why_no_tls(error: ssl.SSLError, text: str) -> str:
    reason = error.reason or ""
    if reason == "WRONG_VERSION_NUMBER":
        return "expected TLS, found something else; is this the port for amqp://?"
    if OLD_PROTOCOL.search(reason):
        return "expected TLS 1.2 or newer, found an older protocol only"
    if isinstance(error, ssl.SSLEOFError) or REFUSED_CLIENT.search(reason):
        given = settings.BROKER_TLS.get("certfile") or "no certificate"
        return (
            f"{text}; a broker does that if it expects a client certificate that it accepts in "
            f"MUSTER_BROKER_CERT, and finds {given}"
        )
    return text


def file_problems() -> Iterator[str]:
    """Say of each file of the TLS settings why it cannot be used."""
    files: dict[str, str] = {
        name: settings.BROKER_TLS[name] for name in TLS_FILES if name in settings.BROKER_TLS
    }
    unreadable = [name for name, path in files.items() if not os.access(path, os.R_OK)]
    yield from (f"{TLS_FILES[name]}={files[name]}: this file cannot be read" for name in unreadable)
    if "ca_certs" in files and "ca_certs" not in unreadable:
        try:
            ssl.create_default_context(cafile=files["ca_certs"])
        except OSError:
            yield f"MUSTER_BROKER_CA={files['ca_certs']}: expected certificates as PEM, found none"
    if "certfile" in files and not {"certfile", "keyfile"} & set(unreadable):
        yield from _pair_problems(files["certfile"], files["keyfile"])


def _pair_problems(certificate: str, key: str) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # an empty passphrase: otherwise OpenSSL asks the terminal for it
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        found = "a key of another certificate"
        if getattr(error, "reason", None) != "KEY_VALUES_MISMATCH":
            found = f"something else ({str(error).partition(' (_ssl')[0]})"
        yield (
            f"MUSTER_BROKER_CERT={certificate}, MUSTER_BROKER_KEY={key}: expected a certificate "
            f"and its key as PEM, without a passphrase, found {found}"
        )


def expired_files(now: datetime) -> Iterator[str]:
    """Say of our own certificate and of the authority's if they are not valid now. Files that
    cannot be read are `file_problems`."""
    from cryptography import x509  # only for who asks: it is large

    for name in ("ca_certs", "certfile"):
        path = settings.BROKER_TLS.get(name)
        if not path:
            continue
        try:
            certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        except (OSError, ValueError):
            continue
        begins_at, ends_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begins_at <= now <= ends_at:
            yield (
                f"{TLS_FILES[name]}={path}: expected a certificate that is valid now, found one "
                f"from {begins_at:%Y-%m-%d %H:%M} to {ends_at:%Y-%m-%d %H:%M} UTC"
            )
