"""`manage.py completion bash|zsh|fish`: a script that completes our commands."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core.management import completion, output


class Command(output.MusterCommand):
    help = "Print a script that completes commands, verbs, options and their values in a shell."
    permissions = {"": output.NOBODY}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shell", choices=list(completion.SHELLS))
        parser.add_argument(
            "--program",
            default="manage.py",
            metavar="NAME",
            help="What you type, if it is an alias of yours.",
        )

    def handle(self, *args: Any, shell: str, program: str, **options: Any) -> None:
        self.stdout.write(completion.SHELLS[shell](program), ending="")
