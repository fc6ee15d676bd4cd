"""Services look for garbage seldom, and never through what they have loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from orchestrator.core.garbage import COLLECTS_AFTER
from tests.users import REPOSITORY

SEEN = """
import gc, json, sys
{start}
print(json.dumps([gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 50_000]))
"""
COMMAND = """
import django
django.setup()
from orchestrator.core.management import program
gc.disable()
program.Program(["manage.py", "worker"]).fetch_command("worker")
"""


@pytest.mark.parametrize("start", [COMMAND, "import settings.asgi"])
def test_services_look_for_garbage_seldom(start: str) -> None:
    program = SEEN.format(start=start)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=True,
        env={"DJANGO_SETTINGS_MODULE": "settings.base"},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == [True, list(COLLECTS_AFTER), True]
