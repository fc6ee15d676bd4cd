"""`manage.py gate`: an executor with keepers of gates, and nothing else."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType

import structlog

from orchestrator.core import brokers, database, presence, relay
from tasks import stalls
from tasks.gates import Keeper, stop_all

log = structlog.get_logger(__name__)


def run(name: str) -> None:
    """Keep the gates of all brokers until a signal comes."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    database.wait_until_reachable()
    keepers = [Keeper(alias, f"{name}@{socket.gethostname()}") for alias in brokers.aliases()]
    for keeper in keepers:
        keeper.start()
    here = presence.begin("gate", name, trouble=lambda: stalls.trouble(keepers))
    log.info("gate ready.", name=name)
    stopping.wait()
    stop_all(keepers)
    here.stop()
    relay.flush()
