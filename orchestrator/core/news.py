"""News: after a commit, who listens is told that rows changed.

It is a hint, never the truth, and costs nothing while nobody listens: every process asks once a
second whether somebody does. Who passes the hints on is an app (`frame.MusterApp.news_sent`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

from django.db import models, transaction

from orchestrator.core import frame
from orchestrator.core.authority import Place
from orchestrator.core.demand import Demand
from orchestrator.core.frame import Feed


@dataclass(frozen=True)
class About:
    """What is said of a row to who may see it. Nothing of its contents."""

    id: str
    """As the API names it."""
    place: Place
    owner: str = ""
    """Whose it is, as histories name them; empty if it is nobody's."""
    state: str = ""


@dataclass(frozen=True)
class News:
    """Rows of a feed that changed in one transaction."""

    feed: Feed
    ids: Collection[Any]
    """None of a feed whose history says which."""
    state: str
    at: datetime


_demand = Demand(lambda app: app.news_wanted)


def tell(
    model: type[models.Model],
    ids: Iterable[Any],
    *,
    state: str,
    now: datetime,
    is_in_history: bool = True,
) -> None:
    """Tell, after the commit, that these rows of a model are in this state now.

    `is_in_history`: the feed's history says so too, if it has one; then nobody is told the ids.
    """
    if not _demand.ask():
        return
    feed, told = _feeds().get(model._meta.label), tuple(ids)
    if feed is None or not told:
        return
    if feed.history is not None and is_in_history:
        told = ()
    news = News(feed, told, str(state), now)
    for send in frame.collect(lambda app: app.news_sent):
        transaction.on_commit(partial(send, news))


@cache
def _feeds() -> dict[str, Feed]:
    return {feed.model: feed for feed in frame.collect(lambda app: app.feeds)}
