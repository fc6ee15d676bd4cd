"""Criteria, parameters and schedules need no Django, and so neither a database nor settings."""

from __future__ import annotations

import subprocess
import sys


def test_criteria_parameters_and_schedules_are_evaluated_without_django() -> None:
    program = (
        "import sys; from orchestrator.automation import criteria, parameters, schedules; "
        "assert criteria.compile_criteria({}); sys.exit('django' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
