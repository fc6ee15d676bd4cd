"""`python -m benchmarks.without_automation executor`: `manage.py` without the parts of automation.

No installation can do that: it shows what these parts cost whoever has no rule.
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

from orchestrator.automation.apps import AutomationConfig

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
for brought in ("executor_parts", "news_listeners", "when_clock_was_set_back", "retention"):
    setattr(AutomationConfig, brought, ())
execute_from_command_line(["manage.py", *sys.argv[1:]])
