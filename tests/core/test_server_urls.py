"""A malformed URL of a server is refused: what is wrong is said, and no secret is shown."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from settings import server_urls
from settings.server_urls import BROKER, DATABASE, REDIS, Form


@pytest.mark.parametrize(
    ("form", "url"),
    [
        (DATABASE, "sqlite:////var/lib/muster/muster.db"),
        (DATABASE, "postgresql://muster:p%40ss@db.internal:5432/muster?sslmode=verify-full"),
        (DATABASE, "postgresql://one:5432,two:5433/muster"),
        (DATABASE, "postgresql://[::1]:5432/muster"),
        (DATABASE, "postgresql:///muster"),
        (DATABASE, "postgresql://muster@/muster"),
        (DATABASE, "postgres:////var/run/postgresql/muster"),
        (BROKER, "sqlitemq:////var/lib/muster/broker.db"),
        (BROKER, "amqp://muster:secret@rabbit.internal//"),
        (BROKER, "amqps://rabbit.internal:5671/%2Fmuster"),
        (BROKER, "amqp://one//;amqp://two:5672//"),
        (REDIS, "redis://cache.internal"),
        (REDIS, "rediss://:secret@cache.internal:6380/2?ssl_ca_certs=/etc/ca.pem"),
        (REDIS, "unix:///run/redis.sock?db=1"),
    ],
)
def test_good_urls_are_taken(form: Form, url: str) -> None:
    server_urls.refuse_malformed("X_URL", url, form)


@pytest.mark.parametrize(
    ("form", "url", "found", "fault"),
    [
        (DATABASE, "muster", "muster", "this is not a URL"),
        (DATABASE, "mysql://host/name", "mysql://host/name", "mysql:// is not supported"),
        (DATABASE, "sqlite://", "sqlite://", "the path is missing"),
        (DATABASE, "postgresql://host", "postgresql://host", "the name of the database is missing"),
        (DATABASE, "postgresql://:5432/muster", "postgresql://:5432/muster", "the host is missing"),
        (DATABASE, "postgresql://one:1,two:x/n", "postgresql://one:1,two:.../n", "the port is not"),
        (BROKER, "amqp://u:secret@/", "amqp://...@/", "the host is missing"),
        (BROKER, "amqp://host:0//", "amqp://host:0//", "the port is not a number from 1 to 65535"),
        (BROKER, "amqp://u:sec/ret@host//", "amqp://...@host//", "the port is not a number"),
        (BROKER, "amqp://user:secret", "amqp://user:...", "the port is not a number"),
        (BROKER, "amqp://one//;amqq://two//", "amqq://two//", "amqq:// is not supported"),
        (BROKER, "amqp://[::1//", "amqp://[:...//", "the host cannot be read"),
        (REDIS, "redis://:secret@host/cache", "redis://...@host/cache", "/cache is not the number"),
        (REDIS, "host:6379", "host:...", "this is not a URL"),
    ],
)
def test_malformed_url_is_refused_with_what_is_wrong(
    form: Form, url: str, found: str, fault: str
) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        server_urls.refuse_malformed("X_URL", url, form)
    said = str(refused.value)
    assert said.startswith(f"X_URL={found!r}: {fault}")
    assert f"; expected {form.example}" in said
    assert "secret" not in said
    assert "ret@" not in said
