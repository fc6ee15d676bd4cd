"""What is started is ready soon, also where many wait for the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

from tests.scenarios.installation import Installation

MOST_PROCESSOR_SECONDS = 1.5


def test_executor_and_worker_need_little_processor_time_to_be_ready(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    for service in muster.services:
        used = psutil.Process(service.pid).cpu_times()
        measured(f"processor time of {service.name}, from its start", used.user + used.system)
        assert used.user + used.system <= MOST_PROCESSOR_SECONDS
