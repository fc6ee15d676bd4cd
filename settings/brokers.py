"""The brokers of gates, by alias, and the TLS arguments of all connections to brokers."""

from __future__ import annotations

import re
import ssl
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from settings import server_urls
from settings.muster import Muster

VARIABLE = "MUSTER_GATE_BROKERS"
DEFAULT = "default"


def of_gates(text: str) -> dict[str, str]:
    """Read `ALIAS=URL[;URL],...`; returns the URLs by alias. Raises ImproperlyConfigured, which
    names the alias and what is wrong with it, and shows no password."""
    brokers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        alias, is_pair, url = part.partition("=")
        if not is_pair or not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", alias):
            raise ImproperlyConfigured(
                f"{VARIABLE}: {server_urls.shown(part)!r} does not begin with an alias; expected "
                "ALIAS=URL, with small letters, digits, '-' and '_'. In a password, a comma is "
                "written as %2C."
            )
        if alias == DEFAULT:
            raise ImproperlyConfigured(f"{VARIABLE}: {DEFAULT!r} is BROKER_URL; use another alias.")
        if alias in brokers:
            raise ImproperlyConfigured(f"{VARIABLE}: the alias {alias!r} is there twice.")
        server_urls.refuse_malformed(f"{VARIABLE}, {alias}", url, server_urls.BROKER)
        brokers[alias] = url
    return brokers


def tls(muster: Muster) -> dict[str, Any]:
    """The TLS arguments of py-amqp for every `amqps://` connection. Without them, it would compare
    the name in the certificate with nothing, and an old protocol would do."""
    if bool(muster.broker_cert) != bool(muster.broker_key):
        given, missing = "MUSTER_BROKER_CERT", "MUSTER_BROKER_KEY"
        if muster.broker_key:
            given, missing = missing, given
        raise ImproperlyConfigured(f"{given} is set without {missing}: expected both, or none.")
    files = {
        "ca_certs": muster.broker_ca,
        "certfile": muster.broker_cert,
        "keyfile": muster.broker_key,
    }
    return {
        "cert_reqs": ssl.CERT_REQUIRED,
        "server_hostname": None,  # the name: that of the URL
        "tls_minimum_version": ssl.TLSVersion.TLSv1_2,
        **{name: path for name, path in files.items() if path},
    }
