"""TLS to PostgreSQL, RabbitMQ and Redis: work goes through, and a server that is not the one that
it says it is gets nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import servers
from tests.scenarios.installation import REPOSITORY, Backend, Installation, environment_of
from tests.security.certificates import Authority, Certificate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server_tls")]


@dataclass(frozen=True)
class Encrypted:
    """The three servers, and the file of the authority that signed for them."""

    postgres: servers.PostgresServer
    rabbit: servers.RabbitServer
    redis: servers.RedisServer
    rabbit_port: int
    redis_port: int
    authority: Path

    def urls(self, *, authority: Path | None = None, database: str = "postgres") -> dict[str, str]:
        """As docs/operating.md says them."""
        ca = authority or self.authority
        at = "postgres@127.0.0.1"
        return {
            "DATABASE_URL": f"postgresql://{at}:{self.postgres.port}/{database}"
            f"?sslmode=verify-full&sslrootcert={ca}",
            "BROKER_URL": f"amqps://guest:guest@127.0.0.1:{self.rabbit_port}//",
            "MUSTER_BROKER_CA": str(ca),
            "REDIS_URL": f"rediss://127.0.0.1:{self.redis_port}/0?ssl_ca_certs={ca}",
        }


@pytest.fixture
def stranger(authority: Authority) -> Iterator[Authority]:
    """An authority that signed nothing here."""
    stranger = Authority("stranger")
    yield stranger
    stranger.close()


@pytest.fixture(scope="module")
def encrypted(start_shared_server: Callable[..., Any], authority: Authority) -> Encrypted:
    certificate = authority.certificate("IP:127.0.0.1")
    return _started(start_shared_server, certificate, authority.file)


@pytest.fixture(scope="module")
def misnamed(start_shared_server: Callable[..., Any], authority: Authority) -> Encrypted:
    """Certificates of a good authority, for another server."""
    certificate = authority.certificate("DNS:other.example")
    return _started(start_shared_server, certificate, authority.file)


def _started(start: Callable[..., Any], files: Certificate, authority: Path) -> Encrypted:
    rabbit_port, redis_port = servers.free_port(), servers.free_port()
    return Encrypted(
        start(
            servers.PostgresServer,
            settings={
                "ssl": "on",
                "ssl_cert_file": str(files.certificate),
                "ssl_key_file": str(files.key),
            },
        ),
        start(
            servers.RabbitServer,
            configuration=(
                f"listeners.ssl.default = 127.0.0.1:{rabbit_port}\n"
                f"ssl_options.certfile = {files.certificate}\n"
                f"ssl_options.keyfile = {files.key}\n"
                "ssl_options.verify = verify_none\n"
            ),
        ),
        start(
            servers.RedisServer,
            arguments=(
                *("--tls-port", str(redis_port), "--tls-auth-clients", "no"),
                *("--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key)),
            ),
        ),
        rabbit_port,
        redis_port,
        authority,
    )


class EncryptedBackend(Backend):
    """Muster on these servers, over TLS alone."""

    def __init__(self, encrypted: Encrypted) -> None:
        super().__init__(encrypted.postgres, encrypted.rabbit, encrypted.redis)
        self._encrypted = encrypted

    def environment(self, directory: Path) -> dict[str, str]:
        plain = super().environment(directory)
        database = plain["DATABASE_URL"].rpartition("/")[2]
        host = plain["BROKER_URL"].rpartition("/")[2]
        urls = self._encrypted.urls(database=database)
        return urls | {"BROKER_URL": urls["BROKER_URL"].removesuffix("//") + f"/{host}"}


@pytest.fixture
def muster(encrypted: Encrypted) -> Iterator[Installation]:
    backend = EncryptedBackend(encrypted)
    installation = Installation(backend)
    yield installation
    installation.close()
    backend.close()


def test_work_goes_through_encrypted_connections_alone(
    muster: Installation, encrypted: Encrypted
) -> None:
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    execution = muster.submit("core.echo", {"text": "hello"})
    assert muster.wait_for_end(execution).status == "completed"

    name = urlsplit(muster.environment["DATABASE_URL"]).path.removeprefix("/")
    with psycopg.connect(encrypted.postgres.url) as connection:
        rows = connection.execute(
            "SELECT DISTINCT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
            "WHERE a.datname = %s",
            [name],
        ).fetchall()
    assert rows == [(True,)]
    host = muster.environment["BROKER_URL"].rpartition("/")[2]
    listed = encrypted.rabbit.control("list_connections", "vhost", "ssl").splitlines()
    ours = [line for line in listed if line.startswith(host)]
    assert ours
    assert all(line.endswith("true") for line in ours)


DATABASE = "from django.db import connection; connection.ensure_connection()"
BROKER = (
    "from orchestrator.core import brokers; link = brokers.connection(); "
    "brokers.ensure_connected(link)"
)
CACHE = "from django.core.cache import cache; cache.set('a', 1); assert cache.get('a') == 1"


@pytest.mark.parametrize("code", [DATABASE, BROKER, CACHE], ids=["database", "broker", "cache"])
class TestConnection:
    def test_is_made_to_the_right_server(self, code, encrypted, tmp_path):
        assert _run(code, encrypted.urls(), tmp_path).returncode == 0

    def test_is_refused_if_an_unknown_authority_signed(self, code, encrypted, stranger, tmp_path):
        refused = _run(code, encrypted.urls(authority=stranger.file), tmp_path)
        assert refused.returncode != 0
        assert "certificate verify failed" in refused.stderr

    def test_is_refused_if_the_certificate_is_anothers(self, code, misnamed, tmp_path):
        refused = _run(code, misnamed.urls(), tmp_path)
        assert refused.returncode != 0
        assert "127.0.0.1" in refused.stderr
        assert "match" in refused.stderr


def test_broker_of_an_unknown_authority_is_refused_without_a_file_of_ours(encrypted, tmp_path):
    urls = encrypted.urls() | {"MUSTER_BROKER_CA": ""}
    assert "certificate verify failed" in _run(BROKER, urls, tmp_path).stderr


def _run(code: str, urls: dict[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "--command", code],
        env=environment_of(directory, urls, {}),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
