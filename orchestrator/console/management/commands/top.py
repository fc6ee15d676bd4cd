"""`manage.py top`: the console's Now in the terminal, live."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import authority
from orchestrator.core.management import arguments, output


class Command(output.MusterCommand):
    help = "Now, live in the terminal: what needs attention, numbers, fleet, queues. q quits."
    permissions = {"": "executions.read"}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="Print it once and end; the default where there is no terminal.",
        )
        parser.add_argument(
            "--every",
            type=arguments.whole(1, 60),
            default=2,
            metavar="SECONDS",
            help="Read again after so many seconds (2).",
        )
        output.add_json(parser)

    def handle(self, *args: Any, once: bool, every: int, as_json: bool, **options: Any) -> None:
        # only who asks for it waits until the console is loaded
        from orchestrator.console import screen, terminal

        read = partial(terminal.read, authority.at_terminal())
        if as_json:
            self.show_json(terminal.document(read()))
        elif once or not screen.is_possible():
            self.show(*terminal.parts(read()))
        else:
            is_plain = not (sys.stdout.encoding or "").lower().startswith("utf")
            draw = partial(terminal.lines, is_coloured=True, is_plain=is_plain)
            reader = screen.Reader(read, every_seconds=every)
            screen.Screen(reader, draw, title="Muster").run()
