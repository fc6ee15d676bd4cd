"""`python -m benchmarks.without_policies executor`: `manage.py` without policies.

No installation can do that: it shows what they cost whoever has none.
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

from orchestrator.policies.apps import PoliciesConfig

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
for brought in ("maintenance", "when_clock_was_set_back", "retention"):
    setattr(PoliciesConfig, brought, ())
PoliciesConfig.ready = lambda self: None  # type: ignore[method-assign]
execute_from_command_line(["manage.py", *sys.argv[1:]])
