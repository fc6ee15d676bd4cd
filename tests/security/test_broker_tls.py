"""TLS to brokers: who is verified, by whom, and the one line that says what is wrong."""

from __future__ import annotations

import dataclasses
import shutil
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from orchestrator.core import brokers, publisher
from orchestrator.core.lanes import RawMessage
from settings import brokers as broker_settings
from tests import servers
from tests.scenarios.installation import Backend, Installation
from tests.security.certificates import Authority, Certificate
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("broker_tls")]

AT = "guest:guest@127.0.0.1"


@dataclass
class TlsRabbit:
    """A RabbitMQ with a plain and a TLS listener, whose certificate can be replaced."""

    server: servers.RabbitServer
    port: int
    presented: Certificate

    def url(self, scheme: str = "amqps", port: int | None = None) -> str:
        return f"{scheme}://{AT}:{port or self.port}//"

    def present(self, certificate: Certificate) -> None:
        """Show this certificate from now on."""
        for source, target in zip(
            dataclasses.astuple(certificate), dataclasses.astuple(self.presented), strict=True
        ):
            target.write_bytes(source.read_bytes())  # keeps the owner
        self.server.control("eval", "ssl:clear_pem_cache().")


@pytest.fixture(scope="module")
def stranger() -> Iterator[Authority]:
    """An authority that signed nothing that is believed here."""
    stranger = Authority("stranger")
    yield stranger
    stranger.close()


@pytest.fixture(scope="module")
def good(authority: Authority) -> Certificate:
    return authority.certificate("IP:127.0.0.1")


def _start(
    start: Callable[..., Any], authority: Authority, good: Certificate, name: str, verify: str
) -> TlsRabbit:
    port = servers.free_port()
    presented = Certificate(
        authority.directory / f"{name}.pem", authority.directory / f"{name}.key"
    )
    for source, target in zip(
        dataclasses.astuple(good), dataclasses.astuple(presented), strict=True
    ):
        shutil.copy(source, target)
        servers.give_file_to_owner(target)
    server = start(
        servers.RabbitServer,
        configuration=(
            f"listeners.ssl.default = 127.0.0.1:{port}\n"
            f"ssl_options.cacertfile = {authority.file}\n"
            f"ssl_options.certfile = {presented.certificate}\n"
            f"ssl_options.keyfile = {presented.key}\n{verify}"
        ),
    )
    return TlsRabbit(server, port, presented)


@pytest.fixture(scope="module")
def _rabbit(
    start_shared_server: Callable[..., Any], authority: Authority, good: Certificate
) -> TlsRabbit:
    verify = "ssl_options.verify = verify_none\n"
    return _start(start_shared_server, authority, good, "presented", verify)


@pytest.fixture
def rabbit(_rabbit: TlsRabbit, good: Certificate) -> Iterator[TlsRabbit]:
    yield _rabbit
    _rabbit.present(good)


@pytest.fixture(scope="module")
def asking(
    start_shared_server: Callable[..., Any], authority: Authority, good: Certificate
) -> TlsRabbit:
    """A RabbitMQ that asks its clients for certificates, too."""
    verify = "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
    return _start(start_shared_server, authority, good, "asking", verify)


@pytest.fixture
def configure(settings: Any) -> Iterator[Callable[..., None]]:
    """Set the URL and the files: ca, cert, key."""

    def configure(url: str, **files: object) -> None:
        publisher.drop_lane()
        given = {f"broker_{name}": str(path) for name, path in files.items()}
        settings.BROKER_URL = url
        settings.BROKER_TLS = broker_settings.tls(dataclasses.replace(settings.MUSTER, **given))

    yield configure
    publisher.drop_lane()


def ours() -> str:
    """The line about a connection of ours; empty if it is made."""
    with brokers.connection() as link:
        try:
            brokers.ensure_connected(link)
        except brokers.errors() as error:
            return brokers.explain(error)
    return ""


def celerys() -> str:
    """The same of Celery's own connection, which has the arguments of `broker_use_ssl`."""
    app = Celery(broker=brokers.url())
    app.conf.update(broker_use_ssl=brokers.tls(), broker_connection_timeout=3)
    with app.connection_for_read() as link:
        try:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=3)
        except brokers.errors() as error:
            return brokers.explain(error)
    return ""


@pytest.mark.parametrize("line", [ours, celerys])
class TestConnection:
    def test_is_made_to_a_broker_of_our_authority(self, line, rabbit, authority, configure):
        configure(rabbit.url(), ca=authority.file)
        assert line() == ""

    def test_is_refused_to_a_broker_of_another_authority(self, line, rabbit, stranger, configure):
        configure(rabbit.url(), ca=stranger.file)
        said = line()
        assert said.startswith(f"amqps://127.0.0.1:{rabbit.port}//: ")
        assert f"expected a certificate signed by MUSTER_BROKER_CA={stranger.file}" in said
        assert "found: self-signed certificate in certificate chain" in said

    def test_asks_the_authorities_of_the_host_if_there_is_none(self, line, rabbit, configure):
        configure(rabbit.url())
        assert "expected a certificate signed by an authority of this host, found" in line()

    def test_is_refused_with_a_certificate_that_has_expired(
        self, line, rabbit, authority, configure
    ):
        rabbit.present(authority.certificate("IP:127.0.0.1", days=-1))
        configure(rabbit.url(), ca=authority.file)
        assert line().endswith(
            "expected a certificate that is valid now, found: certificate has expired"
        )

    def test_is_refused_with_a_certificate_for_another_host(
        self, line, rabbit, authority, configure
    ):
        rabbit.present(authority.certificate("DNS:other.example"))
        configure(rabbit.url(), ca=authority.file)
        said = line()
        assert "expected a certificate with the host's name in it, found: IP address" in said
        assert "'127.0.0.1'" in said

    def test_is_refused_by_a_port_without_tls(self, line, rabbit, authority, configure):
        configure(rabbit.url(port=rabbit.server.port), ca=authority.file)
        assert line() == (
            f"amqps://127.0.0.1:{rabbit.server.port}//: expected TLS, found something else; "
            "is this the port for amqp://?"
        )

    def test_without_tls_is_refused_by_a_port_for_tls(self, line, rabbit, configure):
        configure(rabbit.url("amqp"))
        assert line().endswith("a port for amqps:// does that to amqp://")

    def test_with_a_client_certificate_is_made_to_a_broker_that_asks(
        self, line, asking, authority, configure
    ):
        client = authority.certificate("DNS:client", usage="clientAuth")
        configure(asking.url(), ca=authority.file, cert=client.certificate, key=client.key)
        assert line() == ""

    def test_without_a_client_certificate_is_refused(self, line, asking, authority, configure):
        configure(asking.url(), ca=authority.file)
        assert line().endswith("accepts in MUSTER_BROKER_CERT, and finds no certificate")

    @pytest.mark.parametrize(("signer", "days"), [("stranger", 2), ("authority", -1)])
    def test_with_a_client_certificate_that_does_not_count_is_refused(
        self, line, asking, authority, configure, request, signer, days
    ):
        signed = request.getfixturevalue(signer).certificate("DNS:c", usage="clientAuth", days=days)
        configure(asking.url(), ca=authority.file, cert=signed.certificate, key=signed.key)
        assert line().endswith(f"in MUSTER_BROKER_CERT, and finds {signed.certificate}")

    def test_names_a_file_that_is_missing(self, line, rabbit, tmp_path, configure):
        configure(rabbit.url(), ca=tmp_path / "nowhere.pem")
        assert line().endswith(
            f"MUSTER_BROKER_CA={tmp_path / 'nowhere.pem'}: this file cannot be read"
        )


def test_broker_of_a_gate_is_verified_as_well(rabbit, stranger, authority, configure, settings):
    configure("amqp://127.0.0.1:1//", ca=stranger.file)
    settings.GATE_BROKERS = {"far": rabbit.url()}
    with pytest.raises(publisher.BrokerUnavailable) as refused:
        publisher.send_raw([RawMessage(b"x", "q")], broker="far")
    assert f"1 messages not sent: far (amqps://127.0.0.1:{rabbit.port}//): expected" in str(
        refused.value
    )
    assert "guest" not in str(refused.value)
    configure("amqp://127.0.0.1:1//", ca=authority.file)
    (fate,) = publisher.send_raw([RawMessage(b"x", "no.such.queue")], broker="far")
    assert fate.kind == "returned"
    publisher.drop_lane("far")


def test_older_protocols_are_not_spoken(configure):
    configure("amqps://mq//")
    arguments: Any = brokers.tls()
    assert arguments["tls_minimum_version"] == ssl.TLSVersion.TLSv1_2
    error = ssl.SSLError(1, "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version")
    error.reason = "TLSV1_ALERT_PROTOCOL_VERSION"  # as Erlang answers that speaks 1.1 at most
    assert brokers.explain(error).endswith(
        "expected TLS 1.2 or newer, found an older protocol only"
    )


class WronglyEncrypted(Backend):
    """Muster with RabbitMQ over TLS, and the certificates of an authority in a file."""

    def __init__(self, postgres: Any, rabbit: TlsRabbit, ca: Path) -> None:
        super().__init__(postgres, rabbit.server, None)
        self._rabbit, self._ca = rabbit, ca

    def environment(self, directory: Path) -> dict[str, str]:
        plain = super().environment(directory)
        host = plain["BROKER_URL"].rpartition("/")[2]
        url = f"amqps://{AT}:{self._rabbit.port}/{host}"
        return plain | {"BROKER_URL": url, "MUSTER_BROKER_CA": str(self._ca)}


def test_services_go_on_trying_and_work_once_the_authority_is_right(
    shared_postgres, rabbit, stranger, authority, tmp_path
) -> None:
    ca = tmp_path / "ca.pem"
    shutil.copy(stranger.file, ca)
    backend = WronglyEncrypted(shared_postgres, rabbit, ca)
    muster = Installation(backend)
    try:
        services = [muster.start_executor(), muster.start_worker("w1")]
        said = f"expected a certificate signed by MUSTER_BROKER_CA={ca}"
        for service in services:
            wait_until(partial(_says_again, service, said), f"{service.name} is silent")
            assert service.process.poll() is None, "it goes on trying"
            assert "Traceback" not in service.log()
        shutil.copy(authority.file, ca)
        muster.ready()
        execution = muster.submit("core.echo", {"text": "hello"})
        assert muster.wait_for_end(execution).status == "completed"
    finally:
        muster.close()
        backend.close()


# --- checks before a start ------------------------------------------------------------------------


def checked() -> list[str]:
    return [f"{found.id}: {found.msg}" for found in run_checks(tags=["configuration"])]


class TestCheck:
    @pytest.fixture(autouse=True)
    def _only_brokers(self, settings):
        settings.DATABASES["default"]["ENGINE"] = "django.db.backends.postgresql"
        yield
        settings.DATABASES["default"]["ENGINE"] = "django.db.backends.sqlite3"

    def test_right_files_are_right(self, authority, configure):
        client = authority.certificate("DNS:client", usage="clientAuth")
        configure("amqps://mq//", ca=authority.file, cert=client.certificate, key=client.key)
        assert checked() == []

    def test_files_that_cannot_be_read_are_named(self, tmp_path, configure):
        files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
        configure("amqps://mq//", **files)
        assert checked() == [
            f"muster.E004: MUSTER_BROKER_{name.upper()}={path}: this file cannot be read"
            for name, path in files.items()
        ]

    def test_file_without_certificates_is_refused(self, tmp_path, configure):
        ca = tmp_path / "ca.pem"
        ca.write_text("hello")
        configure("amqps://mq//", ca=ca)
        (said,) = checked()
        assert (
            said == f"muster.E004: MUSTER_BROKER_CA={ca}: expected certificates as PEM, found none"
        )

    def test_key_of_another_certificate_is_refused(self, authority, stranger, configure):
        ours, theirs = authority.certificate("DNS:a"), stranger.certificate("DNS:a")
        configure("amqps://mq//", cert=ours.certificate, key=theirs.key)
        (said,) = checked()
        assert said.startswith("muster.E004: MUSTER_BROKER_CERT=")
        assert said.endswith("found a key of another certificate")

    def test_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
        self, authority, tmp_path, configure
    ):
        pair, locked = authority.certificate("DNS:a"), tmp_path / "locked.key"
        authority.run("rsa", "-aes128", "-passout", "pass:x", "-in", pair.key, "-out", locked)
        configure("amqps://mq//", cert=pair.certificate, key=locked)
        (said,) = checked()
        assert "without a passphrase, found something else" in said

    def test_expired_certificate_is_a_warning_as_the_broker_decides(self, authority, configure):
        old = authority.certificate("DNS:a", usage="clientAuth", days=-1)
        configure("amqps://mq//", cert=old.certificate, key=old.key)
        (said,) = checked()
        assert said.startswith(f"muster.W007: MUSTER_BROKER_CERT={old.certificate}: expected a")

    def test_files_without_a_broker_that_uses_them_are_a_warning(self, authority, configure):
        configure("amqp://mq//", ca=authority.file)
        (said,) = checked()
        assert said.startswith("muster.W008: ")

    @pytest.mark.parametrize("given", ["cert", "key"])
    def test_certificate_and_key_belong_together(self, given, configure):
        with pytest.raises(ImproperlyConfigured, match=f"MUSTER_BROKER_{given.upper()} is set"):
            configure("amqps://mq//", **{given: "/x.pem"})


def _says_again(service: Any, said: str) -> bool:
    return bool(service.log().count(said) > 1)
