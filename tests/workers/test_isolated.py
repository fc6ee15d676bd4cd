"""What runs in the processes of actions knows nothing of Django, and so of no credential."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

from django.conf import settings

from workers import isolated

FORBIDDEN = ("django", "settings", "celery", "kombu", "orchestrator.core.models")


def test_code_of_action_processes_imports_neither_django_nor_settings():
    names = [f"{isolated.__name__}.{each.name}" for each in pkgutil.iter_modules(isolated.__path__)]
    assert "workers.isolated.runner" in names
    code = f"import sys, {', '.join(names)}; print([*sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = eval(ran.stdout)  # noqa: S307 - a list that our own code printed
    assert [name for name in loaded if name.startswith(FORBIDDEN)] == []
