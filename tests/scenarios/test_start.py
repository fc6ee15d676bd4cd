"""What is started is ready soon, also where many wait for the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.scenarios.installation import Installation

MOST_PROCESSOR_SECONDS = 1.5
"""On a machine where the libraries below take half of that."""
LIBRARIES = "import celery.apps.worker, celery.bin.celery, django.contrib.admin, kombu, structlog"
STARTS = 3


def processor_seconds_of_libraries() -> float:
    """The least that an import of them takes here: what a slow machine is measured by."""
    spans = []
    for _ in range(STARTS):
        before = os.times()
        subprocess.run([sys.executable, "-c", LIBRARIES], check=True)
        after = os.times()
        spans.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    return min(spans)


@pytest.mark.slow
def test_executor_and_worker_need_little_processor_time_to_be_ready(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(is_forked=False)
    most = max(MOST_PROCESSOR_SECONDS, 2 * processor_seconds_of_libraries())
    for start in (muster.start_executor, muster.start_worker):
        # what else the machine does only adds to it: the least of a few starts is what it needs
        least = float("inf")
        for number in range(STARTS):
            service = start(f"{start.__name__}{number}")
            muster.ready()
            used = psutil.Process(service.pid).cpu_times()
            least = min(least, used.user + used.system)
            if least <= most:
                break
        measured(f"processor time of {start.__name__}, until it was ready", least)
        assert least <= most
