"""Criteria, parameters, schedules and signatures need no Django, and so neither a database nor
settings."""

from __future__ import annotations

import subprocess
import sys


def test_criteria_parameters_schedules_and_signatures_are_evaluated_without_django() -> None:
    program = (
        "import sys; from orchestrator.automation import criteria, parameters, schedules; "
        "from orchestrator.automation.hooks import parameters, profiles; "
        "assert criteria.compile_criteria({}); sys.exit('django' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
