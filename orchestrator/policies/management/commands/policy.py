"""`manage.py policy`: list, show, create, change and remove policies; their buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.text import Text

from orchestrator.core import clock
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document
from orchestrator.policies import changes, definitions
from orchestrator.policies.changes import InvalidPolicy
from orchestrator.policies.models import Policy, PolicyBucket
from orchestrator.policies.periods import Period
from orchestrator.policies.shown import policies as shown
from orchestrator.policies.states import KINDS

NONE = "No policy: nothing is limited. Make one: manage.py policy create NAME --kind ... --limit N"
BUCKETS_SHOWN = 20


class Command(output.MusterCommand):
    help = "Policies, the limits of what starts: list, show, buckets, create, change, remove."
    permissions = {
        "list": "policies.read",
        "show": "policies.read",
        "buckets": "policies.read",
        "create": "policies.change",
        "change": "policies.change",
        "remove": "policies.change",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        rows = verbs.add_parser("list", help="Policies, what is held of them, and who waits.")
        arguments.add_limit(rows, default=100)
        output.add_json(rows)
        for verb, text in (
            ("show", "One policy, and the buckets that were used last."),
            ("remove", "Have it limit nothing any more; what waits for it starts."),
        ):
            one = verbs.add_parser(verb, help=text)
            one.add_argument("name")
            output.add_json(one)
        buckets = verbs.add_parser("buckets", help="What it counts for each value of its key.")
        buckets.add_argument("name")
        arguments.add_limit(buckets, default=100)
        output.add_json(buckets)
        create = verbs.add_parser("create", help="Limit what starts from now on.")
        _add_values(create, is_new=True)
        change = verbs.add_parser("change", help="Change some values of a policy.")
        _add_values(change, is_new=False)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: Mapping[str, Callable[..., None]] = {
            "list": self.list_rows,
            "show": self.show_one,
            "buckets": self.buckets,
            "create": self.create,
            "change": self.change,
            "remove": self.remove,
        }
        verbs[verb](**options)

    def list_rows(self, *, limit: int, as_json: bool, **options: Any) -> None:
        rows = Policy.objects.in_use().select_related("pack")[:limit]
        listed = shown.all_of(rows, now=clock.now())
        if as_json:
            self.show_items(document(each) for each in listed)
        elif listed:
            self.show(_table(listed))
        else:
            self.stdout.write(NONE)

    def show_one(self, *, name: str, as_json: bool, **options: Any) -> None:
        now = clock.now()
        policy = changes.find(name)
        out = shown.one(policy, now=now)
        if as_json:
            self.show_json(document(out))
            return
        self.show(output.facts(shown.situation(out)))
        if found := _buckets(policy, BUCKETS_SHOWN):
            table = _bucket_table(shown.buckets(found, now=now))
            self.show(Text("\nBuckets", style="bold"), table)

    def buckets(self, *, name: str, limit: int, as_json: bool, **options: Any) -> None:
        listed = shown.buckets(_buckets(changes.find(name), limit), now=clock.now())
        if as_json:
            self.show_items(document(each) for each in listed)
        elif listed:
            self.show(_bucket_table(listed))
        else:
            self.stdout.write("No bucket: nothing of it has started yet.")

    def create(self, *, name: str, as_json: bool, **options: Any) -> None:
        values = {**_given(options), "ref": name}
        values.setdefault("scope", Policy.Scope.GLOBAL.value)
        source = definitions.source_of(values, name=name)
        definitions.check_document(source)
        if source.problems:
            raise CommandError("; ".join(each.message for each in source.problems))
        new = definitions.of_document(values)
        self._write(lambda: changes.create(new, now=clock.now()), "created", as_json=as_json)

    def change(self, *, name: str, as_json: bool, **options: Any) -> None:
        values = _given(options)
        if not values:
            raise CommandError("expected something to change, such as --limit")
        self._write(
            lambda: changes.change(name, values, now=clock.now()), "changed", as_json=as_json
        )

    def remove(self, *, name: str, as_json: bool, **options: Any) -> None:
        policy = changes.remove(name, now=clock.now())
        if as_json:
            self.show_json(document(shown.one(policy, now=clock.now())))
        else:
            self.stdout.write(f"{name} is removed: what waited for it starts")

    def _write(self, write: Callable[[], Policy], done: str, *, as_json: bool) -> None:
        try:
            policy = write()
        except InvalidPolicy as invalid:
            raise CommandError("; ".join(text for _, text in invalid.problems)) from None
        out = shown.one(policy, now=clock.now())
        if as_json:
            self.show_json(document(out))
        else:
            self.say(f"{policy.ref} {done}: {out.text}, of {shown.about(out)}")


def _add_values(parser: CommandParser, *, is_new: bool) -> None:
    parser.add_argument("name")
    parser.add_argument("--kind", choices=Policy.Kind.values, required=is_new)
    parser.add_argument("--limit", type=arguments.whole(1, 1_000_000), required=is_new)
    parser.add_argument("--scope", choices=Policy.Scope.values, help="(default: global)")
    parser.add_argument("--target", help="The pack, the action, the requester or the rule.")
    parser.add_argument("--window-seconds", type=float, help="Of a rate.")
    parser.add_argument("--period", choices=[each.value for each in Period], help="Of a quota.")
    parser.add_argument("--timezone", help="Of a quota's period. (default: UTC)")
    parser.add_argument(
        "--keyed-by",
        action="append",
        metavar="POINTER",
        help="A parameter, such as /host: each value has the limit. May be repeated.",
    )
    parser.add_argument("--on-exceed", choices=Policy.OnExceed.values, help="(default: wait)")
    parser.add_argument("--description")
    switch = parser.add_mutually_exclusive_group()
    for option, value in (("--enable", True), ("--disable", False)):
        switch.add_argument(option, dest="enabled", action="store_const", const=value)
    output.add_json(parser)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    names = (*definitions.COMMON, "scope", "target")
    return {name: options[name] for name in names if options.get(name) is not None}


def _buckets(policy: Policy, limit: int) -> list[PolicyBucket]:
    rows = PolicyBucket.objects.filter(policy=policy).select_related("policy")
    return list(rows.order_by("-used_at")[:limit])


def _table(policies: Sequence[shown.PolicyOut]) -> Table:
    table = Table("name", "state", "limit", "*of", ">held", ">waiting", "exceeding")
    for policy in policies:
        table.add_row(
            output.plain(policy.ref),
            output.status(policy.state, KINDS),
            policy.text,
            output.plain(shown.about(policy)),
            str(policy.held) if policy.kind == Policy.Kind.CONCURRENCY else "",
            str(policy.waiting),
            "waits" if policy.on_exceed == Policy.OnExceed.WAIT else "fails",
        )
    return table


def _bucket_table(buckets: Sequence[shown.BucketOut]) -> Table:
    table = Table("*key", ">taken", ">free", ">waiting", "next due", "last start")
    for bucket in buckets:
        table.add_row(
            output.plain(bucket.key or "-"),
            str(bucket.taken),
            str(bucket.free),
            str(bucket.waiting),
            output.moment(bucket.next_due_at) if bucket.next_due_at else "",
            output.moment(bucket.used_at),
        )
    return table
