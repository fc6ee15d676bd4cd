"""`python -m benchmarks.short_memory executor`: `manage.py` of an installation that removes rows
before they are an hour old.

No installation can do that: so many rows come and go in minutes as else in days.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import django
from django.conf import settings
from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup()

from orchestrator.core import retention  # noqa: E402
from orchestrator.notifications import journal  # noqa: E402

retention.LEAST_AGE = journal.KEPT = timedelta(days=settings.MUSTER.keep_executions_days)
execute_from_command_line(["manage.py", *sys.argv[1:]])
