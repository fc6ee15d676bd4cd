"""`manage.py errand`: ask for errands, and list them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import clock
from orchestrator.core.management import output
from orchestrator.core.management.tables import Table
from tests.errands import verbs
from tests.errands.models import Errand


class Command(output.MusterCommand):
    help = "Errands: ask for one, list them."
    permissions = {"ask": "errands.ask", "list": "errands.read"}

    def add_arguments(self, parser: CommandParser) -> None:
        parsers = parser.add_subparsers(dest="verb", required=True)
        parsers.add_parser("ask", help="Ask for an errand; prints its id.").add_argument("name")
        parsers.add_parser("list", help="All errands.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "ask":
            # no hint: who types it does not wait for a broker
            self.stdout.write(str(verbs.ask(options["name"], now=clock.now(), hint=False).pk))
            return
        made = Table("id", "kind", "state")
        for errand in Errand.objects.select_related("kind"):
            made.add_row(str(errand.pk), errand.kind.name, output.status(errand.state))
        self.show(made)
