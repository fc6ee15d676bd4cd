"""`manage.py docs`: write the pages of docs/ that describe the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from orchestrator.core.management import documents, output


class Command(output.MusterCommand):
    help = "Write the pages of docs/ that describe the code: state machine, topology, reference."
    requires_system_checks = ()
    permissions = {"generate": output.NOBODY}

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        generate = verbs.add_parser("generate", help="Write the pages that are out of date.")
        generate.add_argument(
            "--check", action="store_true", help="Write nothing; fail if a page is out of date."
        )

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        root = Path(settings.BASE_DIR) / "docs"
        if not check:
            written = documents.write(root)
            self.stdout.write("\n".join(f"docs/{name}" for name in written) or "up to date")
        elif names := documents.outdated(root):
            raise CommandError(
                f"Out of date: {', '.join(f'docs/{name}' for name in names)}; "
                "run: manage.py docs generate"
            )
