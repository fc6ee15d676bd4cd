"""Files with the credentials of each service: `api.env`, `executor.env`, `worker.env` and so on.

Each has the DATABASE_URL and the BROKER_URL of one service, for an `EnvironmentFile` of systemd, or
an `env_file` of compose. Both servers get their passwords from these files, so that they agree.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from orchestrator.access import privileges
from orchestrator.core.errors import MusterError

PASSWORD_BYTES = 24
SUFFIX = ".env"
SEPARATOR = "-"
"""Between `worker` and the name of a worker that has a file of its own."""

DATABASE, BROKER = "DATABASE_URL", "BROKER_URL"


class WrongCredentials(MusterError):
    """A file of credentials cannot be read, or lacks something."""


class NoServers(MusterError):
    """There is nothing to log in at."""


@dataclass(frozen=True)
class Login:
    """A login at a server."""

    user: str
    password: str


@dataclass(frozen=True)
class Credentials:
    """The content of one file."""

    service: str
    worker: str
    """The name of the worker whose own they are; empty for those of a whole service."""
    database: Login
    broker: Login


def file_name(service: str, worker: str = "") -> str:
    return f"{service}{SEPARATOR + quote(worker, safe='') if worker else ''}{SUFFIX}"


def create(
    directory: Path, *, database_url: str, broker_url: str, workers: Collection[str] = ()
) -> list[Path]:
    """Write the URLs of each service to its file, with new passwords; returns the files that were
    changed. URLs with the service's own login are left as they are, and so is everything else.

    A worker's own file has a broker user of its own; its database role is that of all workers.
    Raises NoServers and WrongCredentials.
    """
    for name, url, scheme in ((DATABASE, database_url, "postgres"), (BROKER, broker_url, "amqp")):
        if not url.startswith(scheme):
            raise NoServers(f"{name} names no server: the embedded default has no logins")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    changed = []
    for service in privileges.SERVICES:
        name = privileges.login(service)
        urls = {DATABASE: with_login(database_url, name), BROKER: with_login(broker_url, name)}
        changed += _write(directory / file_name(service), urls)
    for worker in workers:
        shared = _read(directory / file_name(privileges.WORKER))[DATABASE]
        name = f"{privileges.login(privileges.WORKER)}_{worker}"
        urls = {DATABASE: shared, BROKER: with_login(broker_url, name)}
        changed += _write(directory / file_name(privileges.WORKER, worker), urls)
    return changed


def read(directory: Path) -> list[Credentials]:
    """Read all files of a directory. Raises WrongCredentials."""
    found = [
        _credentials(path, _read(path), service, unquote(worker))
        for path in sorted(directory.glob(f"*{SUFFIX}"))
        for service, _, worker in [path.name.removesuffix(SUFFIX).partition(SEPARATOR)]
        if service in privileges.SERVICES
    ]
    missing = set(privileges.SERVICES) - {each.service for each in found if not each.worker}
    if missing:
        names = ", ".join(sorted(map(file_name, missing)))
        raise WrongCredentials(
            f"{directory} lacks {names}; create them: manage.py privileges credentials {directory}"
        )
    return found


def of_environment(variables: Mapping[str, str]) -> list[Credentials]:
    """Read variables such as API_DATABASE_URL and API_BROKER_URL. Raises WrongCredentials."""
    return [
        _credentials(
            "the environment",
            {key: variables.get(f"{service.upper()}_{key}", "") for key in (DATABASE, BROKER)},
            service,
        )
        for service in privileges.SERVICES
    ]


def with_login(url: str, name: str) -> str:
    """This URL with another user and a new password, the same for all hosts of a broker."""
    login = f"{quote(name, safe='')}:{secrets.token_urlsafe(PASSWORD_BYTES)}"
    return ";".join(
        parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()
        for parts in _hosts(url)
    )


def _hosts(url: str) -> list[SplitResult]:
    """The URLs of a broker's hosts, which have a `;` between; of a database its own."""
    return [urlsplit(each) for each in (url.split(";") if url.startswith("amqp") else [url])]


def _credentials(
    place: object, values: Mapping[str, str], service: str, worker: str = ""
) -> Credentials:
    at = f"{place}: {service}"
    database, broker = (_login(f"{at}: {key}", values.get(key, "")) for key in (DATABASE, BROKER))
    if database.user != privileges.login(service):
        raise WrongCredentials(
            f"{at}: {DATABASE}: expected the user {privileges.login(service)}, "
            f"found {database.user}"
        )
    return Credentials(service, worker, database, broker)


def _login(place: str, url: str) -> Login:
    parts = urlsplit(url)
    if not (parts.username and parts.password):
        raise WrongCredentials(f"{place}: expected a URL with a user and a password")
    return Login(unquote(parts.username), unquote(parts.password))


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongCredentials(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return dict(_assignments(lines))


def _assignments(lines: Collection[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith("#"):
            yield name.strip(), value.strip().strip("\"'")


def _write(path: Path, urls: Mapping[str, str]) -> list[Path]:
    """Set the URLs in a file that nobody else may read; those of the same user stay."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = dict(_assignments(lines))
    new = {
        name: url
        for name, url in urls.items()
        if not _is_login(known.get(name, ""), urlsplit(url).username)
    }
    if not new:
        return []
    kept = [line for line in lines if line.partition("=")[0].strip() not in new]
    text = "".join(f"{line}\n" for line in (*kept, *(f"{k}={v}" for k, v in new.items())))
    whole = path.with_name(f".{path.name}.new")
    whole.unlink(missing_ok=True)
    with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    whole.replace(path)
    return [path]


def _is_login(url: str, user: str | None) -> bool:
    return all(parts.password and parts.username == user for parts in _hosts(url))
