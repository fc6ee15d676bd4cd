"""Traces, by the standard variables of OpenTelemetry. Off unless one of them asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from django.core.exceptions import ImproperlyConfigured

from settings import variables

EXPORTER = "OTEL_TRACES_EXPORTER"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SPOKEN = "http/protobuf"


def are_on(environ: Mapping[str, str]) -> bool:
    """Return True if spans are exported. The exporter itself reads where to, and the sampler what
    of; see docs/monitoring.md."""
    exporter = variables.one_of(environ, EXPORTER, ("", "otlp", "none"))
    if variables.switch(environ, "OTEL_SDK_DISABLED") or exporter == "none":
        return False
    if not exporter and not any(environ.get(name) for name in ENDPOINTS):
        return False
    for name in (PROTOCOL, PROTOCOL.replace("OTLP_", "OTLP_TRACES_")):
        variables.one_of(environ, name, ("", SPOKEN))
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter.otlp") is None:
        raise ImproperlyConfigured(
            "Traces are asked for, and OpenTelemetry is not installed: "
            f"pip install -r requirements-otel.txt, or set {EXPORTER}=none."
        )
    return True
