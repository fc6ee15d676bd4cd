"""A service loads what it runs: whoever is restarted is ready soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
{code}
print(*sys.modules)
"""
CELERY_WORKER = """
from celery.app.utils import find_app
from kombu.utils.imports import symbol_by_name
app = find_app("settings")
app.loader.import_default_modules()
for step in (*app.steps["worker"], *app.steps["consumer"]):
    symbol_by_name(step)
"""
ADMIN_CHECKS = """
from django.core.checks import run_checks
assert run_checks(tags=["admin"]) == []
"""


def loaded(code: str) -> set[str]:
    command = [sys.executable, "-c", LOADED.format(code=code)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    return set(run.stdout.split())


def test_executor_and_worker_load_neither_api_nor_admin() -> None:
    modules = loaded(CELERY_WORKER)
    assert {"tasks.batch_scheduler", "workers.agent"} <= modules
    faces = {"settings.urls", "orchestrator.core.api", "orchestrator.core.admin", "ninja"}
    assert not modules & faces
    # who opens no key needs no cryptography
    assert "cryptography" not in modules


def test_commands_load_neither_api_nor_admin_nor_cryptography() -> None:
    modules = loaded(
        "import orchestrator.core.management.commands.execution, orchestrator.access.keys"
    )
    assert "orchestrator.access.keys.sealing" in modules
    for face in ("settings.urls", "orchestrator.core.api", "orchestrator.core.admin", "ninja"):
        assert face not in modules
    assert "cryptography" not in modules


def test_garbage_is_collected_once_a_command_is_loaded() -> None:
    code = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", code]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    assert run.stdout.split() == ["True", "True"]


def test_checks_look_at_the_admin_all_the_same() -> None:
    assert "orchestrator.core.admin.executions" in loaded(ADMIN_CHECKS)
