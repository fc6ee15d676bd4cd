"""`manage.py stream`: print what changes, as it happens."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import authority
from orchestrator.core.management import output
from orchestrator.notifications import filters
from orchestrator.notifications.filters import Filter, WrongFilter
from orchestrator.notifications.following import Follower
from orchestrator.notifications.notification import Notification


class Command(output.MusterCommand):
    permissions = {"": "stream.read"}
    help = (
        "Print what changes, a line each, until Ctrl-C. Values of one option are alternatives; "
        "different options must all hold."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for name, metavar, text in (
            ("type", "TYPE", "such as execution.failed, or execution.*"),
            ("entity", "ENTITY[:ID]", "such as rule, or execution:ID"),
            ("pack", "PACK", "such as billing, or billing*"),
            ("user", "NAME", "whose they are, as histories name them"),
        ):
            parser.add_argument(
                f"--{name}", action="append", default=[], metavar=metavar, help=text
            )
        parser.add_argument("--most", type=int, metavar="N", help="end after so many")
        output.add_json(parser)

    def handle(self, *args: Any, as_json: bool, most: int | None, **options: Any) -> None:
        try:
            self._filter = filters.of_query(
                options["type"], options["entity"], options["pack"], options["user"]
            )
        except WrongFilter as error:
            raise CommandError(str(output.plain(error))) from None
        self._as_json, self._most, self._seq = as_json, most, 0
        self._over = threading.Event()
        follower = Follower(
            name=f"{socket.gethostname()}:{os.getpid()}", deliver=self._deliver, clients=lambda: 1
        )
        signal.signal(signal.SIGTERM, self._stop)
        follower.start()
        try:
            while not self._over.wait(0.2):
                pass
        finally:
            follower.stop()
            follower.join(3.0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._over.set()

    def _deliver(self, told: Sequence[Notification]) -> None:
        for one in told:
            if self._over.is_set() or not self._is_for_us(self._filter, one):
                continue
            self._seq += 1
            try:
                self._print(one)
            except BrokenPipeError:
                self._over.set()
            if self._seq == self._most:
                self._over.set()

    def _is_for_us(self, wanted: Filter, one: Notification) -> bool:
        return wanted.matches(one) and authority.may(self.principal, one.permission, one.place)

    def _print(self, one: Notification) -> None:
        if self._as_json:
            self.stdout.write(one.as_json(self._seq))
        else:
            told = (f"{one.at:%H:%M:%S.%f}"[:-3], f"{one.type:24}", one.id, one.pack, one.owner)
            self.say("  ".join(part for part in told if part))
        self.stdout.flush()
