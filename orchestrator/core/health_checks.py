"""Checks that each worker makes of its machine, as configured in `MUSTER_HEALTH_CHECKS`.

`disk_free=100MB,memory_free=5%,my_pack.checks.licence`: the first two are built in, any name with a
dot is a callable of yours. It is called without arguments, and fails if it raises, or returns False
or a text that says what is wrong.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping

from django.conf import settings
from django.utils.module_loading import import_string

from orchestrator.core.errors import MusterError

Check = Callable[[], object]

SIZES: Mapping[str, int] = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


class WrongHealthCheck(MusterError):
    """MUSTER_HEALTH_CHECKS names something that is no check."""


def configured() -> dict[str, Check]:
    """Return the configured checks by name. Raises WrongHealthCheck."""
    checks = {}
    for entry in settings.MUSTER.health_checks.split(","):
        if entry := entry.strip():
            name, _, limit = entry.partition("=")
            checks[name] = _check(entry, name, limit)
    return checks


def of_queue(path: str) -> Check | None:
    """Return the check that a queue names, if it is one of `MUSTER_QUEUE_HEALTH_CHECKS`: who may
    change a queue must not choose what the worker's own process calls. Raises WrongHealthCheck."""
    allowed = {entry.strip() for entry in settings.MUSTER.queue_health_checks.split(",")}
    return _callable("MUSTER_QUEUE_HEALTH_CHECKS", path) if path and path in allowed else None


def _check(entry: str, name: str, limit: str) -> Check:
    if name == "disk_free":
        least = _share_or_bytes(entry, limit)
        return lambda: _disk_free(least)
    if name == "memory_free":
        least = _share_or_bytes(entry, limit)
        return lambda: _memory_free(least)
    if "." not in name or limit:
        raise WrongHealthCheck(
            f"MUSTER_HEALTH_CHECKS: {entry!r}: expected disk_free=SIZE, memory_free=SIZE (100MB, "
            "2GB or 5%), or the dotted path of a callable"
        )
    return _callable("MUSTER_HEALTH_CHECKS", name)


def _callable(where: str, name: str) -> Check:
    try:
        imported = import_string(name)
    except ImportError as error:
        raise WrongHealthCheck(f"{where}: {name}: {error}") from None
    if not callable(imported):
        raise WrongHealthCheck(f"{where}: {name} cannot be called")
    check: Check = imported
    return check


Least = tuple[float, str]
"""A number, and `bytes` or `%`."""


def _share_or_bytes(entry: str, limit: str) -> Least:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(KB|MB|GB|%)", limit)
    if match is None:
        raise WrongHealthCheck(f"MUSTER_HEALTH_CHECKS: {entry!r}: expected 100MB, 2GB or 5%")
    number, unit = float(match[1]), match[2]
    return (number, "%") if unit == "%" else (number * SIZES[unit], "bytes")


def _disk_free(least: Least) -> str | None:
    """Check the disks of temporary files, where actions work, and of Muster's data directory."""
    for path in dict.fromkeys((tempfile.gettempdir(), str(settings.DATA_DIR))):
        usage = shutil.disk_usage(path)
        if wrong := _too_little(usage.free, usage.total, least):
            return f"{path}: {wrong}"
    return None


def _memory_free(least: Least) -> str | None:
    import psutil  # as late as this: every command imports this module, and few measure

    memory = psutil.virtual_memory()
    return _too_little(memory.available, memory.total, least)


def _too_little(free: int, total: int, least: Least) -> str | None:
    number, unit = least
    if unit == "%":
        share = 100 * free / total
        return f"{share:.1f} % free, expected {number:g} %" if share < number else None
    if free >= number:
        return None
    return f"{free / 10**6:,.0f} MB free, expected {number / 10**6:,.0f} MB"
