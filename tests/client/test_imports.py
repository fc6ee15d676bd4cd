"""The package needs nothing of Django, and the process of an action not even the client."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.conf import settings

FORBIDDEN = ("django", "settings", "orchestrator", "workers", "tasks", "celery", "kombu")


def loaded(statement: str) -> list[str]:
    """The modules that Python has loaded after this statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


def test_client_imports_nothing_of_django_and_nothing_of_ours():
    modules = loaded("from muster_client import AsyncMuster, Muster")
    assert "httpx" in modules
    assert [name for name in modules if name.partition(".")[0] in FORBIDDEN] == []


@pytest.mark.parametrize("library", ["httpx", "pydantic"])
def test_decorator_needs_no_other_package(library):
    modules = loaded("from muster_client import TryAgain, action")
    assert library not in modules
