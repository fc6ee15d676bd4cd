"""What apps bring: each says it in its `apps.py`, and the frame collects it from all installed.

A new app edits no list: it is named in `INSTALLED_APPS`. Django itself finds its models, its
`admin` and its commands. Functions are named by their dotted path, so that a process imports only
what it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from django.apps import AppConfig, apps
from django.utils.module_loading import import_string


class Named:
    """A function by its dotted path, imported at its first call."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return import_string(self.path)(*arguments, **keywords)


@dataclass(frozen=True)
class Maintenance:
    """A function that beat schedules, and that the executor's watchdog runs when beat does not."""

    name: str
    """Its Celery task, and its row in beat's schedule."""
    function: Named
    """Takes `now`, returns what it did. May run twice at once."""
    description: str
    """What the schedule's page says of it."""
    interval: str = "maintenance_interval_seconds"
    """The setting that says how often it runs."""
    asks_the_broker: bool = False
    """It may take all of the broker's time limits, which what is due must not wait for."""


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
    """What each executor does for an app, in a thread with a database connection of its own.

    Its functions take `now` and `actor`. Messages are hints, kept in memory: what is lost with
    them is found by `look`.
    """

    queue: HotQueue
    take: Named
    """Takes the ids that came through the queue."""
    ended: Named
    """Takes the ids of executions that ended. Not asked while nothing is open."""
    look: Named
    """Takes nothing more: finds, every second, what no message told of."""
    any_open: Named
    """Takes nothing at all: whether anything of the app's is open."""


@dataclass(frozen=True)
class PackContent:
    """What packs hold beside their actions: a folder of YAML files that an app reads."""

    folder: str
    """Below the pack's, such as `templates`."""
    name_keys: tuple[str, ...]
    """The keys whose values together are a file's name, which no other may have."""
    check: Named
    """Takes a `packs.Source` and notes its problems there."""
    install: Named
    """Takes checked values in a list, `pack` and `now`; returns a `packs.ContentReport`. What is
    not among them any more is disabled."""


@dataclass(frozen=True)
class SubjectKind:
    """Rows that an investigation may be about."""

    name: str
    model: str
    """As `app_label.Model`."""
    take: Named
    """Takes ids and `now`; returns an `investigations.Subject` of each that there is."""


@dataclass(frozen=True)
class Life:
    """A state machine, for the page of `docs/` that is made of all of them."""

    title: str
    machine: str
    """Its dotted path."""
    begins: str
    """How a row comes to its first state, as one word."""
    intro: str = ""
    """A paragraph above its tables."""
    notes: tuple[str, ...] = ()
    """Paragraphs below them."""


@dataclass(frozen=True)
class SidebarItem:
    """A link of the admin's sidebar to a model's list, for whoever may view it."""

    group: str
    title: str
    icon: str
    model: str
    """As `app_label.model`, in lower case."""


class MusterApp(AppConfig):
    """An app of Muster. What it does not bring, it leaves out."""

    default = False
    default_auto_field = "django.db.models.BigAutoField"

    def __init_subclass__(cls) -> None:
        """Django takes the one class of an `apps` module that is the default: never this one."""
        cls.default = True

    api_routers: ClassVar[Sequence[tuple[str, str]]] = ()
    """Prefixes below `/api/v1`, and the routers that answer there."""
    maintenance: ClassVar[Sequence[Maintenance]] = ()
    when_clock_was_set_back: ClassVar[Sequence[Named]] = ()
    """Each makes due what waits for a time of a later clock: takes `now`, returns how many."""
    executor_parts: ClassVar[Sequence[ExecutorPart]] = ()
    pack_contents: ClassVar[Sequence[PackContent]] = ()
    subject_kinds: ClassVar[Sequence[SubjectKind]] = ()
    database_views: ClassVar[Sequence[Named]] = ()
    """Each takes a database's vendor; returns SQL by name, each view after those that it reads."""
    metrics: ClassVar[Sequence[Named]] = ()
    """Each takes `now`; yields Prometheus' metric families."""
    execution_facts: ClassVar[Sequence[Named]] = ()
    """Each takes an execution; returns `shown` facts: what it was run for."""
    sidebar: ClassVar[Sequence[SidebarItem]] = ()
    lives: ClassVar[Sequence[Life]] = ()
    kinds: ClassVar[Sequence[str]] = ()
    """Dotted paths of tables from states to their kinds, see `words`."""


Brought = TypeVar("Brought")


def ours() -> list[MusterApp]:
    """The installed apps of Muster, in the order of `INSTALLED_APPS`."""
    return [app for app in apps.get_app_configs() if isinstance(app, MusterApp)]


def collect(bring: Callable[[MusterApp], Sequence[Brought]]) -> list[Brought]:
    """What all installed apps bring of one kind."""
    return [item for app in ours() for item in bring(app)]
