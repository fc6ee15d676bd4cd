"""Signs of life for the supervisor of a worker on its machine: a file, and systemd's socket."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from django.conf import settings

from orchestrator.core import private_files

log = structlog.get_logger(__name__)


def path_of(name: str) -> Path:
    """The file of the worker of this name. Its age is that of the last renewed heartbeat."""
    return Path(settings.DATA_DIR) / "alive" / quote(name, safe="")


class Sign:
    """The sign that a worker shows as long as its heartbeat is renewed."""

    def __init__(self, name: str) -> None:
        self.path = path_of(name)
        self._is_ready = False

    def renew(self, **facts: Any) -> None:
        """Write the file again, and notify systemd. Errors of either do not stop the worker."""
        try:
            private_files.make_directory(self.path.parent)
            draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            with open(draft, "w", opener=private_files.opener) as file:
                file.write(json.dumps({"pid": os.getpid(), "at": time.time(), **facts}) + "\n")
            draft.replace(self.path)
        except OSError as error:
            log.warning("cannot write the liveness file", path=str(self.path), error=str(error))
        notify("WATCHDOG=1" if self._is_ready else "READY=1\nWATCHDOG=1")
        self._is_ready = True

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def notify(state: str) -> None:
    """Notify systemd, if it listens: `sd_notify(3)`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # an abstract socket is written with @ and addressed with a zero byte
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), target)
    except OSError as error:
        log.debug("systemd was not notified", error=str(error))
