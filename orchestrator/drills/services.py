"""The commands that make up an installation, as `up` and `demo` start them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from django.conf import settings

from orchestrator.drills.supervisor import Service


def api(*, port: int) -> Service:
    return Service(
        name="api",
        command=_manage("api", "--port", str(port)),
    )


def executor() -> Service:
    return Service(name="executor", command=_manage("executor"))


def beat() -> Service:
    return Service(name="beat", command=_manage("beat"))


def sensor() -> Service:
    return Service(name="sensor", command=_manage("sensor"))


def worker(
    name: str, *, concurrency: int, restarts: bool = True, labels: Sequence[str] = ()
) -> Service:
    """`labels` as `key=value`."""
    arguments = ["worker", "--name", name, "--concurrency", str(concurrency)]
    for label in labels:
        arguments += ["--label", label]
    return Service(name=name, command=_manage(*arguments), restarts=restarts)


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
