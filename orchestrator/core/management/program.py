"""`manage.py`: Django's, with our commands first in its help."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Sequence

from django.core.management import ManagementUtility, get_commands, load_command_class
from django.core.management.base import BaseCommand

from orchestrator.core import garbage

OURS = "orchestrator."
"""The beginning of the names of our apps."""

SERVICES = ("api", "beat", "executor", "notifier", "sensor", "worker")
"""Commands whose log says what they set up and ask for."""

LOGGERS_OF_SERVICES = ("httpx", "orchestrator.core.declarations")
"""The loggers of services: what they log at level info is of no use beside the answer of another
command."""

WIDTH = 100
NAME_WIDTH = 12


def run(arguments: Sequence[str]) -> None:
    """Run the command that the arguments name."""
    Program(list(arguments)).execute()


class Program(ManagementUtility):
    def fetch_command(self, subcommand: str) -> BaseCommand:
        """Load the command. Until then `manage.py` lets nobody look for garbage."""
        command = super().fetch_command(subcommand)
        garbage.settle()
        if subcommand not in SERVICES:
            _quieten()
        return command

    def main_help_text(self, commands_only: bool = False) -> str:
        if self.settings_exception is not None:
            raise self.settings_exception
        if commands_only:
            return super().main_help_text(commands_only)
        commands = sorted(get_commands().items())
        ours = [_described(name, app) for name, app in commands if _is_ours(app)]
        foreign = ", ".join(name for name, app in commands if not _is_ours(app))
        return "\n".join(
            [
                f"usage: {self.prog_name} COMMAND [VERB] [ARGUMENTS]",
                "",
                *ours,
                "",
                f"Of each command: {self.prog_name} COMMAND --help. Those of Django:",
                *textwrap.wrap(foreign, WIDTH, initial_indent="  ", subsequent_indent="  "),
            ]
        )


def _quieten() -> None:
    """Hide what only the logs of services are for; LOG_LEVEL=DEBUG shows it."""
    if logging.getLogger().getEffectiveLevel() == logging.INFO:
        for name in LOGGERS_OF_SERVICES:
            logging.getLogger(name).setLevel(logging.WARNING)


def _is_ours(app: object) -> bool:
    return str(app).startswith(OURS)


def _described(name: str, app: object) -> str:
    """The command's name, and what it does."""
    text = load_command_class(str(app), name).help
    indent = " " * (NAME_WIDTH + 2)
    return textwrap.fill(
        text, WIDTH, initial_indent=f"  {name:<{NAME_WIDTH}}", subsequent_indent=indent
    )
