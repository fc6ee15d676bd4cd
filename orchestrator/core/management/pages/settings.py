"""The page of the settings of an installation."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from itertools import pairwise

from django.conf import settings

from orchestrator.core.management.markdown import page_of, table_of

UNITS = {
    "_seconds": "seconds",
    "_ms": "milliseconds",
    "_bytes": "bytes",
    "_mb": "MiB",
    "_multiplier": "times",
    "_limit": "executions",
    "_size": "rows or messages",
}


def page() -> str:
    kind = type(settings.MUSTER)
    meanings = attribute_docstrings(kind)
    rows = []
    for field in fields(kind):
        unit = next((unit for end, unit in UNITS.items() if field.name.endswith(end)), "")
        default = (
            f"{field.default:g}"
            if isinstance(field.default, float)
            else str(field.default or "(empty)")
        )
        variable = f"`MUSTER_{field.name.upper()}`"
        rows.append(
            (
                variable,
                type(field.default).__name__,
                f"`{default}`" if default else "empty",
                unit,
                meanings[field.name],
            )
        )
    return page_of(
        "Settings",
        "Settings are environment variables, read once at start. An unknown `MUSTER_` variable, a "
        "value of the wrong type, and settings that contradict each other are refused then. "
        "`manage.py check` names the problem.",
        table_of(("Variable", "Type", "Default", "Unit", "Meaning"), rows),
        "The servers, and Django's settings:",
        table_of(
            ("Variable", "Without it", "Meaning"),
            [
                ("`DATABASE_URL`", "SQLite in `MUSTER_DATA_DIR`", "`postgresql://...`"),
                (
                    "`BROKER_URL`",
                    "a SQLite file in `MUSTER_DATA_DIR`",
                    "`amqp://...`, or `amqps://...` for TLS",
                ),
                (
                    "`BROKER_MANAGEMENT_URL`",
                    "the broker's host, port 15672 or 15671",
                    "RabbitMQ's management API, for `manage.py topology check`: "
                    "`http://USER:PASSWORD@HOST:15672`.",
                ),
                (
                    "`REDIS_URL`",
                    "each API process counts and computes for itself",
                    "`redis://...`, or `rediss://...` for TLS. For API processes alone.",
                ),
                ("`SECRET_KEY`", "created once, in `MUSTER_DATA_DIR`", "Django's secret key."),
                ("`ALLOWED_HOSTS`", "this machine's names", "Host names, separated by commas."),
                (
                    "`CSRF_TRUSTED_ORIGINS`",
                    "none",
                    "Origins of the admin behind a proxy, separated by commas. With "
                    "`MUSTER_TLS=on`: `https://` and each of `ALLOWED_HOSTS`.",
                ),
                (
                    "`FORWARDED_ALLOW_IPS`",
                    "`127.0.0.1`",
                    "Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed, "
                    "separated by commas.",
                ),
                (
                    "`HTTP_THREADS`",
                    "16",
                    "Requests of the API and the admin that are handled at once, in a process.",
                ),
                ("`DEBUG`", "off", "Pages that show code and settings when something fails."),
                ("`LOG_LEVEL`", "`INFO`", "`DEBUG`, `INFO`, `WARNING` or `ERROR`."),
            ],
        ),
    )


def attribute_docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the attributes of a class, by attribute."""
    (body,) = (
        node.body
        for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        if isinstance(node, ast.ClassDef)
    )
    docstrings = {}
    for attribute, text in pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            docstrings[attribute.target.id] = " ".join(str(text.value.value).split())
    return docstrings
