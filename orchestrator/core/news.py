"""News: after a commit, who listens is told that rows changed.

It is a hint, never the truth, and costs nothing while nobody listens: every process asks once a
second whether somebody does. Apps pass the hints on (`frame.MusterApp.news_listeners`), and each is
asked for itself: what one wants makes no work for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

from django.db import models, transaction

from orchestrator.core import frame
from orchestrator.core.authority import Place
from orchestrator.core.demand import Demand
from orchestrator.core.frame import Feed, Named


@dataclass(frozen=True)
class About:
    """The facts that are said of a row to who may see it. Nothing of its contents."""

    id: str
    """As the API names it."""
    place: Place
    owner: str = ""
    """The owner of the row, as histories name them; empty if it is nobody's."""
    state: str = ""


@dataclass(frozen=True)
class News:
    """Rows of a feed that changed in one transaction."""

    feed: Feed
    ids: Collection[Any]
    state: str
    at: datetime
    is_in_history: bool = False
    """True if the feed has a history that says so, too."""


def tell(
    model: type[models.Model],
    ids: Iterable[Any],
    *,
    state: str,
    now: datetime,
    is_in_history: bool = True,
) -> None:
    """Tell, after the commit, that these rows of a model are in this state now.

    `is_in_history`: the feed's history says so too, if it has one.
    """
    wanting = [send for demand, send in _listeners() if demand.ask()]
    if not wanting:
        return
    feed, told = _feeds().get(model._meta.label), tuple(ids)
    if feed is None or not told:
        return
    is_in_history = feed.history is not None and is_in_history
    news = News(feed, told, str(state), now, is_in_history)
    for send in wanting:
        transaction.on_commit(partial(send, news))


@cache
def _listeners() -> Sequence[tuple[Demand, Named]]:
    listeners = frame.collect(lambda app: app.news_listeners)
    return [(Demand(each.wants), each.send) for each in listeners]


@cache
def _feeds() -> dict[str, Feed]:
    return {feed.model: feed for feed in frame.collect(lambda app: app.feeds)}
