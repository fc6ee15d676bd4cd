"""The URLs of the database, the broker and Redis. A wrong one is refused at start in one line,
without the password in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True)
class Form:
    """The URLs that a variable may have."""

    servers: tuple[str, ...]
    """Schemes that need a host."""
    files: tuple[str, ...]
    """Schemes that need a path, and have no host."""
    example: str
    needs_name: bool = False
    """The path of a server's URL names a database. Then the host may be left out for the local
    socket."""
    path: str = ".*"
    """The pattern of the path of a server's URL."""
    separator: str = ""
    """Between the URLs of servers that stand in for each other."""


DATABASE = Form(
    servers=("postgresql", "postgres", "pgsql", "psql"),
    files=("sqlite",),
    example="postgresql://USER:PASSWORD@HOST:5432/NAME or sqlite:///PATH",
    needs_name=True,
    path="/.+",
)
BROKER = Form(
    servers=("amqp", "amqps"),
    files=("sqlitemq",),
    example="amqp://USER:PASSWORD@HOST:5672/VHOST, amqps://... or sqlitemq:///PATH",
    separator=";",
)
REDIS = Form(
    servers=("redis", "rediss"),
    files=("unix",),
    example="redis://:PASSWORD@HOST:6379/0, rediss://... or unix:///PATH",
    path=r"(/\d*)?",
)

MANAGEMENT = Form(
    servers=("http", "https"),
    files=(),
    example="http://USER:PASSWORD@HOST:15672 or https://...",
)

ESCAPES = "In a password, / is written as %2F, # as %23, ? as %3F, @ as %40"


def refuse_malformed(variable: str, text: str, form: Form) -> None:
    """Raise ImproperlyConfigured, with what is wrong, if this is no URL of the form."""
    urls = text.split(form.separator) if form.separator else [text]
    for url in urls:
        if fault := next(_faults(url, form), ""):
            hint = f". {ESCAPES}" if "@" in url else ""
            raise ImproperlyConfigured(
                f"{variable}={shown(url)!r}: {fault}; expected {form.example}{hint}"
            )


def shown(url: str) -> str:
    """The URL without what may be a secret: user, password, query, and a port that is none."""
    beginning, separator, rest = url.partition("://")
    if not separator:
        return re.sub(r"[:@?].*", ":...", url)
    _, at, rest = rest.rpartition("@")
    rest = re.sub(r"\?.*", "?...", rest)
    rest = re.sub(r":(?!\d+(?=[,/?]|$))[^,/\]]+(?=[,/?]|$)", ":...", rest)
    return f"{beginning}://{'...@' if at else ''}{rest}"


def _faults(url: str, form: Form) -> Iterator[str]:
    """Everything that is wrong with it, the most telling first."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        yield "this is not a URL"
    if scheme not in form.servers + form.files:
        yield f"{scheme}:// is not supported"
    try:
        parts = urlsplit(url)
    except ValueError:
        yield "the host cannot be read"
        return
    if scheme in form.files:
        if not parts.path.strip("/") and ":memory:" not in parts.netloc:
            yield "the path is missing"
        return
    yield from _faults_of_hosts(parts, form)
    if not re.fullmatch(form.path, parts.path):
        yield (
            "the name of the database is missing"
            if form.needs_name
            else (f"{parts.path} is not the number of a database")
        )


def _faults_of_hosts(parts: SplitResult, form: Form) -> Iterator[str]:
    hosts = parts.netloc.rpartition("@")[2]
    is_socket = form.needs_name and not hosts
    for host in hosts.split(","):
        each = urlsplit(f"//{host}")
        try:
            if each.port == 0:
                raise ValueError
        except ValueError:
            yield "the port is not a number from 1 to 65535"
        if not each.hostname and not is_socket:
            yield "the host is missing"
