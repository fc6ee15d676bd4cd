"""Lists over tables of any size: capped counts, and time ranges by primary key.

Ids are UUIDv7, so they are in order of time: a range of time is a range of the primary key, and
needs no index of its own.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from django.utils.functional import cached_property
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter

from orchestrator.core import clock
from orchestrator.core.models.time_ordered import created_between, ids_beginning_with

COUNT_LIMIT = 10_000

_HEX = re.compile(r"[0-9a-f-]{4,36}", re.IGNORECASE)


class CappedPaginator(Paginator):
    """A paginator that counts up to `COUNT_LIMIT`; only filters reach the rows after it."""

    template_name = "orchestrator/admin/pagination.html"

    @cached_property
    def beginning(self) -> list[Any]:
        """The first page, and one more row: if there is none, nothing needs to be counted."""
        return list(self.object_list[: self.per_page + 1])

    @cached_property
    def count(self) -> int:
        if not isinstance(self.object_list, QuerySet):
            return len(self.object_list)
        if len(self.beginning) <= self.per_page:
            return len(self.beginning)
        return self.object_list.order_by()[:COUNT_LIMIT].count()

    def page(self, number: int | str) -> Page[Any]:
        """A page; the first one was read with the count."""
        page = super().page(number)
        if page.number == 1:
            page.object_list = self.beginning[: self.per_page]
        return page

    @property
    def is_capped(self) -> bool:
        return self.count >= COUNT_LIMIT


def id_starts_with(text: str, *, field: str = "pk") -> Q | None:
    """A condition for ids that start with `text`, at least four hexadecimal digits; None if it
    cannot be an id. Of a short id, as lists print it, the part before its `…` counts."""
    text = text.partition("…")[0]
    digits = text.replace("-", "")
    if not _HEX.fullmatch(text) or not 4 <= len(digits) <= 32:
        return None
    return Q((f"{field}__range", ids_beginning_with(digits)))


class CreatedWithin(DropdownFilter):
    title = "time of creation"
    parameter_name = "within"
    field = "created_at"
    windows = {
        "15m": ("the last 15 minutes", timedelta(minutes=15)),
        "1h": ("the last hour", timedelta(hours=1)),
        "24h": ("the last 24 hours", timedelta(hours=24)),
        "7d": ("the last 7 days", timedelta(days=7)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(key, text) for key, (text, _) in self.windows.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        if self.value() not in self.windows:
            return queryset
        _, window = self.windows[self.value()]
        return queryset.filter(created_between(clock.now() - window, None, field=self.field))


class CreatedBetween(RangeDateTimeFilter):
    """From and to, in the installation's timezone; a date without a time means all of that day."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        return queryset.filter(
            created_between(
                self._bound("from", "00:00:00"),
                self._bound("to", "23:59:59.999999"),
                field=self.parameter_name,
            )
        )

    def _bound(self, name: str, default_time: str) -> datetime | None:
        date_text = self.used_parameters.get(f"{self.parameter_name}_{name}_0") or ""
        time_text = self.used_parameters.get(f"{self.parameter_name}_{name}_1") or default_time
        try:
            date, time = parse_date(date_text), parse_time(time_text)
        except ValueError:  # well formed, but no day of the calendar
            return None
        if date is None or time is None:
            return None
        return timezone.make_aware(datetime.combine(date, time))
