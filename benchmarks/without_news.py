"""`python -m benchmarks.without_news executor`: `manage.py` of an installation that tells nobody.

No installation can do that: it shows what streams cost whoever has no listener.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management import execute_from_command_line

from orchestrator.core import news

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")


def _tell_nobody(*_: Any, **__: Any) -> None:
    pass


news.tell = _tell_nobody
execute_from_command_line(["manage.py", *sys.argv[1:]])
