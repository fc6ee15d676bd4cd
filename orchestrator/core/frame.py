"""Contributions of apps: each declares its own in `apps.py`, and the frame collects them.

A new app edits no list except `INSTALLED_APPS`. Django itself finds its models, its `admin` and its
commands. Functions are named by their dotted path, so that a process imports only those that it
uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

from django.apps import AppConfig, apps
from django.utils.module_loading import import_string


class Named:
    """A function by its dotted path, imported at its first call."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.load()(*arguments, **keywords)

    def load(self) -> Callable[..., Any]:
        """Import it. Threads that import modules of a package at once may find them half done: a
        process with several does this first."""
        function: Callable[..., Any] = import_string(self.path)
        return function


@dataclass(frozen=True)
class Maintenance:
    """A function that beat schedules, and that the executor's watchdog runs when beat does not."""

    name: str
    """Its Celery task, and its row in beat's schedule."""
    function: Named
    """Takes `now`, returns a summary of its work. May run twice at once."""
    description: str
    """Its text on the page of the schedule."""
    interval: str = "maintenance_interval_seconds"
    """The setting with its interval."""
    is_slow: bool = False
    """True if it may take seconds, such as the broker's time limits, or as somebody holds each of
    many rows, so that urgent functions must not wait for it."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Rows that are removed when they have been over for long enough."""

    name: str
    """In the metric, and in `manage.py prune`."""
    days: str
    """The setting with the age at which they go."""
    most: str = ""
    """The setting with the number of them that are kept at most; none if there is no such limit."""
    model: str
    """As `app_label.Model`."""
    ended: str
    """Its field with the time since when a row is over."""
    old: Named
    """Takes a time; returns the queryset of the rows that were over before it and may go."""
    parts: tuple[str, ...] = ()
    """Rows that go with them, those that refer to others first: `app_label.Model.field`, where the
    field leads to the row."""
    at_once: int = 500
    """Rows of one transaction."""
    is_history: bool = False
    """True for rows that no login may change, and so none may lock. Nobody else removes them."""


@dataclass(frozen=True)
class HotQueue:
    """A queue that executors take in batches; each of its messages names ids."""

    spec: Named
    """Returns its `topology.QueueSpec`."""
    message: str
    """The Celery task's name in its messages."""
    listed: str
    """The argument that has the ids."""


@dataclass(frozen=True)
class ExecutorPart:
    """The work of each executor for an app, in a thread with its own database connection.

    Its functions take `now` and `actor`. Messages are hints, kept in memory: if some are lost,
    `look` finds their work.
    """

    queue: HotQueue
    take: Named
    """Takes the ids that came through the queue."""
    look: Named
    """Takes nothing more. Finds, every second, work that no message reported."""
    ended: Named | None = None
    """Takes the ids of executions that ended. Not called while nothing is open."""
    any_open: Named | None = None
    """Takes no arguments; returns True if anything is open that the end of an execution concerns.
    Only for a part with `ended`."""


@dataclass(frozen=True)
class OpenDoor:
    """Routes whose callers need no token: strangers, whose bodies are checked by other means."""

    prefix: str
    """Of their paths, below `/api/v1`."""
    admit: Named
    """Takes the request, without its body; raises, like an operation, if that is not to be read."""


@dataclass(frozen=True)
class HeldRuntime:
    """A runtime without workers: the app holds its executions, and ends them by
    `executions.answer`. Nothing of them is dispatched."""

    name: str
    """The `runtime` of its actions."""
    take: Named
    """Takes executions of the backlog, `now` and `actor`. Not called in a transaction. What it
    leaves behind, the app finds by looking."""
    deadline_seconds: Named
    """Takes parameters; returns the deadline of a request that states none."""


@dataclass(frozen=True)
class PackContent:
    """Content of packs besides actions: a folder of YAML files that an app reads."""

    folder: str
    """Below the pack's, such as `templates`."""
    name_keys: tuple[str, ...]
    """The keys whose values together are a file's name, which must be unique."""
    check: Named
    """Takes a `packs.Source` and notes its problems there."""
    install: Named
    """Takes checked values in a list, `pack`, `now` and `principal`, whose permissions count unless
    it is None; returns a `packs.ContentReport`. Disables content that is no longer among them.
    Raises `packs.ContentRefused` for problems that have a place in a file."""
    check_pack: Named | None = None
    """Takes a `packs.PackFiles`, and notes what is wrong with the files as parts of their pack."""


@dataclass(frozen=True)
class PackDependents:
    """Rows of an app that refer to actions, or other content, of packs that are not their own."""

    kind: str
    """One of them, in a word: `rule`."""
    broken: Named
    """Takes a `packs.NewVersion`; returns a `packs.Broken` for each that it would break."""
    disable: Named
    """Takes refs and `now`, and disables what they name; called in the transaction of the
    installation."""
    reads: str
    """The permission to see them."""
    disables: str
    """The permission to disable them."""
    about: str = "packs"
    """`PACKS` or `NAMESPACES`: what their refs begin with."""


@dataclass(frozen=True)
class PackWork:
    """Open rows of an app that still need a pack, besides executions."""

    kind: str
    """One of them, in a word: `task`."""
    open: Named
    """Takes the name of a pack, a principal or None, and a permission; returns the ids of such rows
    that the principal has the permission for, as texts, the oldest first."""
    cancel: Named
    """Takes such ids, `by` and `now`."""
    reads: str
    """The permission to see them."""
    cancels: str
    """The permission to cancel them."""
    releases: Named
    """Takes nothing; returns the ids of releases that open rows may still ask for."""
    pause: Named | None = None
    """Takes the name of a pack and `now`: nothing new begins because of its content."""


@dataclass(frozen=True)
class SearchKey:
    """A key of the search language of executions, for rows that an app links to them."""

    name: str
    about: str
    example: str
    read: Named
    """Takes a `search.grammar.Term` and `search.Asked`; returns the condition, or raises
    `search.conditions.Mistaken`."""


@dataclass(frozen=True)
class SubjectKind:
    """Rows that an investigation may be about."""

    name: str
    model: str
    """As `app_label.Model`."""
    take: Named
    """Takes ids and `now`; returns an `investigations.Subject` for each that exists."""
    about: str = ""
    """`PACKS` or `NAMESPACES`: what the name of a subject begins with. Without it, only callers
    whose grant has no scope see its entries."""
    payloads: tuple[str, ...] = ()
    """The keys in its snapshots, at any depth, that only `payloads.read` shows. Without any, it
    takes that to see the snapshot at all."""


@dataclass(frozen=True)
class Life:
    """A state machine, for the page of `docs/` that is generated from all of them."""

    title: str
    machine: str
    """Its dotted path."""
    begins: str
    """The word for the way in which a row enters its first state."""
    intro: str = ""
    """A paragraph above its tables."""
    notes: tuple[str, ...] = ()
    """Paragraphs below them."""


@dataclass(frozen=True)
class History:
    """A table that says every change of another one's rows."""

    rows: Named
    """Returns a queryset of tuples: the id of a row of history, which rises, and of what changed
    the id, the new state and the time. Without an id, the row is about something else."""
    key: str
    """The column by which the rows of one id are found."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Rows whose changes are told to who listens: over the streams of the API, and by `manage.py
    stream`. See `orchestrator/notifications`.

    Changes are found in one of three ways: in a history, whose rows say all of them; with
    `columns`, by triggers of the database, for what changes a few times a second at most; with
    neither, only by what `news.tell` says after a commit.
    """

    entity: str
    """The kind of row that changed, such as `execution`. The type of a notification begins with
    it."""
    model: str
    """As `app_label.Model`."""
    permission: str
    """The permission that a listener needs at the place of the row, to be told."""
    about: Named
    """Takes ids; returns by id a `news.About` of each row that exists."""
    history: History | None = None
    columns: tuple[str, ...] = ()
    """Those of its columns whose changes are news, besides the insertion of a row."""
    is_named_by_state: bool = True
    """True if a type ends with the new state (`worker.draining`), False if it ends with `created`
    or `changed` (`rule.changed`)."""


@dataclass(frozen=True)
class NewsListener:
    """An app that passes on what `news.tell` says after a commit."""

    wants: Named
    """Takes no arguments; returns True while somebody waits for what it sends. Each process asks
    once a second."""
    send: Named
    """Takes a `news.News` of any feed, after the commit of what it tells; returns at once."""


VIEWER, OPERATOR, AUTHOR, ADMIN = ROLES = ("viewer", "operator", "author", "admin")
"""Roles are fixed sets of permissions; an admin has all of them."""

PACKS, NAMESPACES, WORKERS = "packs", "namespaces", "workers"
INSTALLATION = "installation"
"""The permission is about all of it: a grant with a scope does not give it."""
OWN = "own"
"""The permission is about the caller's own things: any grant gives it."""


@dataclass(frozen=True)
class Permission:
    """Something that a caller may be permitted to do."""

    name: str
    """A noun and a verb: `executions.cancel`."""
    text: str
    """The text that says what it permits, for the page of permissions."""
    about: tuple[str, ...] = (PACKS,)
    """The things that scopes name of the rows that it is about."""
    roles: tuple[str, ...] = ()
    """The roles that have it, besides `admin`."""


@dataclass(frozen=True)
class SidebarItem:
    """A link of the admin's sidebar to a model's list, for users who may view it."""

    group: str
    title: str
    icon: str
    model: str
    """As `app_label.model`, in lower case."""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The rights of one service to the rows of one table: to all columns, or to those named."""

    read: bool | tuple[str, ...] = False
    add: bool = False
    change: bool | tuple[str, ...] = False
    remove: bool = False
    hidden: tuple[str, ...] = ()
    """Columns that it may not read, although it may read all others."""


NONE = Rights()
READ = Rights(read=True)
ADD = Rights(read=True, add=True)
ADD_AND_REMOVE = Rights(read=True, add=True, remove=True)
CHANGE = Rights(read=True, add=True, change=True)
ALL = Rights(read=True, add=True, change=True, remove=True)


@dataclass(frozen=True, kw_only=True)
class TableRights:
    """The rights of each service to a table or a view. The owner, who migrates, has all of them."""

    table: str
    api: Rights = NONE
    """The API and the admin."""
    executor: Rights = NONE
    worker: Rights = NONE
    beat: Rights = NONE
    notifier: Rights = NONE
    """It says that something changed, and of what: contents are not for it."""

    def of(self, service: str) -> Rights:
        rights: Rights = getattr(self, service)
        return rights


class MusterApp(AppConfig):
    """An app of Muster. It sets only the attributes for which it brings something."""

    default = False
    default_auto_field = "django.db.models.BigAutoField"

    def __init_subclass__(cls) -> None:
        """Mark subclasses as the default: Django takes the one default class of an `apps`
        module."""
        cls.default = True

    api_routers: ClassVar[Sequence[tuple[str, str]]] = ()
    """Prefixes below `/api/v1`, and the routers that answer there."""
    plain_routers: ClassVar[Sequence[tuple[str, str]]] = ()
    """The same for `/v1`, whose lists are arrays."""
    open_doors: ClassVar[Sequence[OpenDoor]] = ()
    maintenance: ClassVar[Sequence[Maintenance]] = ()
    retention: ClassVar[Sequence[Retention]] = ()
    kept_executions: ClassVar[Sequence[Named]] = ()
    """Each returns a condition for executions, by `OuterRef("pk")`, that the app still needs."""
    when_clock_was_set_back: ClassVar[Sequence[Named]] = ()
    """Each makes due what waits for a time of a clock that was set back: takes `now`, returns how
    many."""
    executor_parts: ClassVar[Sequence[ExecutorPart]] = ()
    held_runtimes: ClassVar[Sequence[HeldRuntime]] = ()
    dead_letters: ClassVar[Sequence[Named]] = ()
    """Each takes `dead_letters.Letter`s and `now`; writes what follows from those that belong to
    its app, in transactions of its own, and returns their positions. A letter may come again."""
    pack_contents: ClassVar[Sequence[PackContent]] = ()
    pack_dependents: ClassVar[Sequence[PackDependents]] = ()
    pack_work: ClassVar[Sequence[PackWork]] = ()
    subject_kinds: ClassVar[Sequence[SubjectKind]] = ()
    table_rights: ClassVar[Sequence[str]] = ()
    """Dotted paths of sequences of `TableRights`: one for each table and view of the app."""
    database_views: ClassVar[Sequence[Named]] = ()
    """Each takes a database's vendor; returns SQL by name, each view after those that it reads."""
    permissions: ClassVar[Sequence[Permission]] = ()
    metrics: ClassVar[Sequence[Named]] = ()
    """Each takes `now`; yields Prometheus' metric families."""
    metrics_described: ClassVar[Sequence[str]] = ()
    """Dotted paths of sequences of what `metrics` yields, for the page of `docs/` that is generated
    from all of them."""
    feeds: ClassVar[Sequence[Feed]] = ()
    news_listeners: ClassVar[Sequence[NewsListener]] = ()
    execution_secrets: ClassVar[Sequence[Named]] = ()
    """Each takes executions; returns by id the `contents.Secrets` that the app knows of them."""
    execution_askers: ClassVar[Sequence[Named]] = ()
    """Each takes the ids of executions; returns by id the `authority.Asker` behind those that
    Muster itself requested for somebody."""
    execution_facts: ClassVar[Sequence[Named]] = ()
    """Each takes an execution; returns `shown` facts about its purpose."""
    warnings: ClassVar[Sequence[Named]] = ()
    """Each takes `now`; returns lines about what does not work, although this process does. The
    readiness check shows them to everybody: they name no host, and nothing that is secret."""
    services: ClassVar[Sequence[Named]] = ()
    """Each takes `now`; returns `presence.columns` of the services besides workers that the app
    knows."""
    execution_contents: ClassVar[Sequence[Named]] = ()
    """Each takes an execution and `seen_by`; returns `shown.executions.Content`s for its page,
    whose secrets it has removed."""
    search_keys: ClassVar[Sequence[SearchKey]] = ()
    sidebar: ClassVar[Sequence[SidebarItem]] = ()
    overview: ClassVar[Sequence[Named]] = ()
    """Each takes `now` and a principal; returns boxes of the admin's first page, each a title and
    cards, which the principal may see."""
    lives: ClassVar[Sequence[Life]] = ()
    reference_pages: ClassVar[Mapping[str, Named]] = {}
    """Generated pages of `docs/`, by their path there; each takes no arguments and returns its
    text."""
    kinds: ClassVar[Sequence[str]] = ()
    """Dotted paths of tables from states to their kinds, see `words`."""


Brought = TypeVar("Brought")


def ours() -> list[MusterApp]:
    """The installed apps of Muster, in the order of `INSTALLED_APPS`."""
    return [app for app in apps.get_app_configs() if isinstance(app, MusterApp)]


def collect(bring: Callable[[MusterApp], Sequence[Brought]]) -> list[Brought]:
    """Collect one kind of contribution from all installed apps."""
    return [item for app in ours() for item in bring(app)]


@cache
def held_runtimes() -> dict[str, HeldRuntime]:
    """The runtimes without workers, by name."""
    return {each.name: each for each in collect(lambda app: app.held_runtimes)}
