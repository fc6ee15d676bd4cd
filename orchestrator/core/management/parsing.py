"""Parsers of our commands: their own help first, and what was meant beside what was typed."""

from __future__ import annotations

import argparse
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser, DjangoHelpFormatter

from orchestrator.core.words import did_you_mean

DJANGOS = (
    "Django's options, which stand before a verb: --settings, --pythonpath, --verbosity, "
    "--traceback, --no-color, --force-color, --skip-checks, --version."
)


class ParsedCommand(BaseCommand):
    """A command whose help does not begin with Django's options, and whose errors offer what is
    spelled alike."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        djangos = BaseCommand().create_parser(prog_name, subcommand, add_help=False)
        for action in djangos._actions:
            action.help = argparse.SUPPRESS
        parser = _Parser(
            prog=f"{os.path.basename(prog_name)} {subcommand}",
            description=self.help,
            epilog=DJANGOS,
            parents=[djangos],
            formatter_class=DjangoHelpFormatter,
            called_from_command_line=getattr(self, "_called_from_command_line", None),
            **kwargs,
        )
        self.add_arguments(parser)
        return parser


class _Parser(CommandParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here, where the usage is that of the verb."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = str(unknown[0]).partition("=")[0]
            known = [spelled for each in self._actions for spelled in each.option_strings]
            self.error(f"unknown argument {option!r}{did_you_mean(option, known)}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Offer what is like it, or else all there is."""
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        hint = did_you_mean(str(value), known) or f": expected one of {', '.join(known)}"
        raise argparse.ArgumentError(action, f"{value!r} is unknown{hint}")
