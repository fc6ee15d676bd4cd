"""`manage.py queue`: list, show, create, apply, pause, resume and retire queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from rich.text import Text

from orchestrator.core import clock, words
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table
from orchestrator.core.packs import source as yaml_source
from orchestrator.core.packs.source import Source
from orchestrator.core.shown.documents import document
from orchestrator.queues import caf, changes, definitions
from orchestrator.queues.changes import Applied, InvalidQueue
from orchestrator.queues.definitions import NewQueue
from orchestrator.queues.management import gate_verbs
from orchestrator.queues.models import WorkQueue
from orchestrator.queues.models.queues import REASON_MAX
from orchestrator.queues.shown import queues as shown
from orchestrator.queues.states import KINDS

DIFFERS = 1
"""The exit status of a check that would change something."""

ORDERS: dict[str, tuple[Callable[..., WorkQueue], str, str]] = {
    "pause": (changes.pause, "Start nothing of it; it accepts all the same.", "is paused"),
    "resume": (changes.resume, "Start its work again.", "is resumed"),
    "retire": (changes.retire, "Take it out of use, once nothing of it is open.", "is retired"),
}


class Command(output.MusterCommand):
    help = "Work queues: list, show, create, apply, pause, resume, retire; import from CAF."
    permissions = {
        "list": "queues.read",
        "show": "queues.read",
        "create": "queues.change",
        "apply": "queues.change",
        "import-caf": output.NOBODY,
        **dict.fromkeys(ORDERS, "queues.change"),
        **gate_verbs.PERMISSIONS,
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        listing = verbs.add_parser("list", help="Queues with their figures, by name.")
        listing.add_argument("--retired", action="store_true", help="Also those out of use.")
        arguments.add_limit(listing, default=200)
        output.add_json(listing)
        show = verbs.add_parser("show", help="One queue: figures, definition, latest events.")
        show.add_argument("name")
        output.add_json(show)
        create = verbs.add_parser("create", help="Make a queue without a file.")
        _add_create(create)
        apply = verbs.add_parser("apply", help="Bring queues in line with files.")
        apply.add_argument("files", nargs="+", type=Path, metavar="FILE")
        apply.add_argument(
            "--check",
            action="store_true",
            help="Change nothing; show what would change. Exit status 1 if something would.",
        )
        apply.add_argument("--reason", type=arguments.text(REASON_MAX))
        output.add_json(apply)
        for verb, (_, text, _) in ORDERS.items():
            one = verbs.add_parser(verb, help=text)
            one.add_argument("name")
            one.add_argument(
                "--reason", type=arguments.text(REASON_MAX), required=True, help="Kept with it."
            )
            output.add_json(one)
        gate_verbs.add_to(verbs)
        caf_verb = verbs.add_parser(
            "import-caf", help="Print a queue file for the environment of a CAF worker."
        )
        caf_verb.add_argument("env_file", type=Path, metavar="ENV_FILE")
        caf_verb.add_argument("--name", help="The queue's. (default: after the input queue)")
        output.add_json(caf_verb)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "create": self.create,
            "apply": self.apply,
            "import-caf": self.import_caf,
            **gate_verbs.GateVerbs(self).verbs,
        }
        if verb in ORDERS:
            self.order(verb, **options)
        else:
            verbs[verb](**options)

    def list_rows(self, *, retired: bool, limit: int, as_json: bool, **options: Any) -> None:
        rows = WorkQueue.objects.select_related("action", "pack", "gate")
        if not retired:
            rows = rows.filter(retired_at__isnull=True)
        listed = shown.all_of(rows[:limit], now=clock.now())
        if as_json:
            self.show_items(document(each) for each in listed)
        elif listed:
            self.show(_table(listed))
        else:
            self.stdout.write("No queue but the default one. Make one: manage.py queue create NAME")

    def show_one(self, *, name: str, as_json: bool, **options: Any) -> None:
        now = clock.now()
        one = shown.detail(changes.find(name), now=now)
        if as_json:
            self.show_json(document(one))
            return
        self.show(output.facts(shown.situation(one, now)))
        for title, facts in (("Rules", shown.rules(one)), ("Gate", shown.gate_facts(one))):
            if facts:
                self.show(Text(f"\n{title}", style="bold"), output.facts(facts))
        self.show(Text("\nEvents", style="bold"), _events(one.events))

    def create(self, *, name: str, as_json: bool, **options: Any) -> None:
        keys = [key for key in definitions.QUEUE_KEYS if options.get(key) is not None]
        values = {key: options[key] for key in keys}
        file = definitions.source_of(values, name=name)
        definitions.check_queue(file)
        if file.problems:
            raise CommandError("\n".join(each.message for each in file.problems))
        new = definitions.new_queue(file.value)
        applied = self._apply([new], reason="", is_check=False, revision=0)
        self._show_applied(applied, as_json=as_json)

    def apply(
        self, *, files: list[Path], check: bool, reason: str | None, as_json: bool, **options: Any
    ) -> None:
        applied = self._apply(_read(files), reason=reason or "", is_check=check)
        self._show_applied(applied, as_json=as_json, would="would be " if check else "")
        if check and any(each.outcome != changes.UNCHANGED for each in applied):
            raise SystemExit(DIFFERS)

    def order(self, verb: str, *, name: str, reason: str, as_json: bool, **options: Any) -> None:
        run, _, done = ORDERS[verb]
        run(name, reason=reason, actor=self.principal.actor, now=clock.now())
        if as_json:
            self.show_json(document(shown.detail(changes.find(name), now=clock.now())))
        else:
            self.stdout.write(f"{name} {done}")

    def import_caf(
        self, *, env_file: Path, name: str | None, as_json: bool, **options: Any
    ) -> None:
        try:
            environment = caf.read_environment(env_file.read_text())
            imported = caf.import_environment(environment, name=name)
        except (OSError, UnicodeDecodeError, caf.NotACafEnvironment) as error:
            raise CommandError(f"{env_file}: {error}") from None
        if as_json:
            self.show_json({"file": imported.text, "ignored": dict(imported.ignored)})
            return
        self.stdout.write(imported.text, ending="")
        for variable, why in imported.ignored:
            self.stderr.write(f"ignored {variable}: {why}")

    def _apply(
        self,
        news: Sequence[NewQueue],
        *,
        reason: str,
        is_check: bool,
        revision: int | None = None,
    ) -> list[Applied]:
        """Apply all of them, or none."""
        principal = self.principal
        try:
            if is_check:
                return [changes.differences(new, principal=principal) for new in news]
            by: dict[str, Any] = {"actor": principal.actor, "now": clock.now(), "reason": reason}
            by |= {"revision": revision, "principal": principal}
            with transaction.atomic():
                return [changes.apply(new, **by) for new in news]
        except InvalidQueue as invalid:
            raise CommandError("\n".join(text for _, text in invalid.problems)) from None

    def _show_applied(self, applied: Sequence[Applied], *, as_json: bool, would: str = "") -> None:
        if as_json:
            self.show_items(
                {
                    "name": each.name,
                    "outcome": each.outcome,
                    "differences": [one._asdict() for one in each.differences],
                }
                for each in applied
            )
            return
        for each in applied:
            is_same = each.outcome == changes.UNCHANGED
            self.stdout.write(f"{each.name}: {'' if is_same else would}{each.outcome}")
            for one in each.differences:
                note = f" ({one.needs})" if one.needs else ""
                self.stdout.write(f"  {one.key}: {one.before!r} -> {one.after!r}{note}")


def _read(files: Sequence[Path]) -> list[NewQueue]:
    """The queues in these files. Raises CommandError with every problem of all of them."""
    read: list[Source] = [yaml_source.read(file) for file in files]
    for each in read:
        definitions.check_queue(each)
    found = [problem for each in read for problem in each.problems]
    if found:
        raise CommandError("\n".join(map(str, found)))
    return [definitions.new_queue(each.value) for each in read]


def _add_create(parser: CommandParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--description")
    parser.add_argument("--action", metavar="PACK.NAME", help="For requests that name no action.")
    parser.add_argument("--priority", type=int)
    for name in ("deadline_seconds", "timeout_seconds"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float)
    for name in ("retry_limit", "prefetch_buffer", "max_running"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    output.add_json(parser)


def _table(queues: Sequence[shown.QueueSummary]) -> Table:
    table = Table(
        *("name", "state", ">waiting", ">running", ">oldest", ">per min", "*served by", "*why")
    )
    for queue in queues:
        limit = "" if queue.max_running is None else f"/{queue.max_running}"
        table.add_row(
            output.plain(queue.name),
            output.status(queue.state, KINDS),
            str(queue.waiting),
            f"{queue.running}{limit}",
            words.span(queue.oldest_seconds) if queue.waiting else "",
            f"{queue.per_minute:g}",
            output.plain(", ".join(map(shown.served, queue.served_by))),
            output.plain(shown.why(queue)),
        )
    return table


def _events(events: Sequence[shown.QueueEventOut]) -> Table:
    table = Table("at", "event", ">revision", "by", "*reason")
    for event in events:
        table.add_row(
            output.moment(event.at),
            event.kind,
            str(event.revision),
            output.plain(event.actor),
            output.plain(event.reason),
        )
    return table
