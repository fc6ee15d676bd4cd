"""Lists over tables of any size: capped counts, and time ranges by primary key.

Ids are UUIDv7, so they are in order of time: a range of time is a range of the primary key, and
needs no index of its own.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

from django.core.paginator import Page, Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from django.utils.functional import cached_property
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter

from orchestrator.core import clock, cursors
from orchestrator.core.models.time_ordered import created_between, ids_beginning_with

COUNT_LIMIT = 10_000

FIRST_DAY, LAST_DAY = date.min + timedelta(days=2), date.max - timedelta(days=2)
"""Of a range: in any timezone there is time left before, and after."""

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


class ByKey(DropdownFilter):
    """A filter whose values are keys of another table's rows, which are numbers."""

    field: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        try:
            key = cursors.whole_number(self.value() or "")
        except ValueError:
            return queryset
        return queryset.filter(**{self.field: key})


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


class TimeBetween(RangeDateTimeFilter):
    """From and to, in the installation's timezone; a date without a time means all of that day."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        start, end = self._bound("from", "00:00:00"), self._bound("to", "23:59:59.999999")
        return queryset.filter(self.condition(start, end))

    def condition(self, start: datetime | None, end: datetime | None) -> Q:
        """The rows of a range of time; either end may be open."""
        wanted = Q() if start is None else Q((f"{self.parameter_name}__gte", start))
        return wanted if end is None else wanted & Q((f"{self.parameter_name}__lte", end))

    def _bound(self, name: str, default_time: str) -> datetime | None:
        date_text = self.used_parameters.get(f"{self.parameter_name}_{name}_0") or ""
        time_text = self.used_parameters.get(f"{self.parameter_name}_{name}_1") or default_time
        try:
            day, time = parse_date(date_text), parse_time(time_text)
        except ValueError:  # well formed, but no day of the calendar
            return None
        if day is None or time is None:
            return None
        return timezone.make_aware(datetime.combine(min(max(day, FIRST_DAY), LAST_DAY), time))


class CreatedBetween(TimeBetween):
    """Of rows whose ids have the time."""

    def condition(self, start: datetime | None, end: datetime | None) -> Q:
        return created_between(start, end, field=self.parameter_name)
