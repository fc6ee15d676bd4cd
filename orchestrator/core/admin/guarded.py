"""Permissions in the admin: those of the API, decided by the same authorizer. Django's own
permissions of models count for nothing here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest

from orchestrator.core import authority
from orchestrator.core.admin import lookups
from orchestrator.core.authority import Principal


class Guarded:
    """A mixin for every admin of a model. What it does not declare, nobody may do."""

    view_permission: ClassVar[str] = ""
    add_permission: ClassVar[str] = ""
    change_permission: ClassVar[str] = ""
    delete_permission: ClassVar[str] = ""

    linked_lookups: ClassVar[Collection[str]] = ()
    """Parameters of its list that links of ours have, besides those of its filters."""

    def principal(self, request: HttpRequest) -> Principal:
        """The user, with the grants of now."""
        return authority.of_request(request)

    def may(self, request: HttpRequest, permission: str, obj: Any = None) -> bool:
        """Return True if the user has the permission for this row, or for any."""
        place = getattr(obj, "place", None)
        return bool(permission) and authority.may(self.principal(request), permission, place)

    def may_act(self, request: HttpRequest, permission: str, object_id: Any = None) -> bool:
        """Return True if the user has the permission for the row of a button; a row that they do
        not see has none."""
        if object_id is None:
            return self.may(request, permission)
        obj = self.get_object(request, str(object_id))  # type: ignore[attr-defined]
        return obj is not None and self.may(request, permission, obj)

    def within_reach(
        self, request: HttpRequest, rows: QuerySet[Any], permission: str
    ) -> QuerySet[Any]:
        """Those of the selected rows for which the user has the permission."""
        return rows.visible_to(self.principal(request), permission)  # type: ignore[attr-defined, no-any-return]

    # --- what Django asks

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)  # type: ignore[misc]
        if not hasattr(rows, "visible_to"):
            return rows
        return self.within_reach(request, rows, self.view_permission)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Return True for what a filter of the list, or a link of ours, asks.

        Django allows any lookup of any column: a user could read contents that no page shows them,
        one character after another, by whether rows appear.
        """
        if lookup in self.linked_lookups:
            return True
        filters = self.get_list_filter(request)  # type: ignore[attr-defined]
        model = self.model  # type: ignore[attr-defined]
        return any(lookup in lookups.of_filter(each, model) for each in filters)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, self.view_permission, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, self.add_permission, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, self.change_permission, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, self.delete_permission, obj)
