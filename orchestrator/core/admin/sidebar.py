"""The admin's sidebar: what apps bring, in groups, in the order in which they bring it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy

from orchestrator.core import frame
from orchestrator.core.frame import SidebarItem


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Unfold's `SIDEBAR.navigation`."""
    overview = {"title": "Overview", "icon": "dashboard", "link": reverse_lazy("admin:index")}
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in frame.collect(lambda app: app.sidebar):
        groups.setdefault(item.group, []).append(_link(item))
    return [
        {"items": [overview]},
        *({"title": title, "separator": True, "items": items} for title, items in groups.items()),
    ]


def _link(item: SidebarItem) -> dict[str, Any]:
    app, model = item.model.split(".")
    return {
        "title": item.title,
        "icon": item.icon,
        "link": reverse_lazy(f"admin:{app}_{model}_changelist"),
        "permission": _may(f"{app}.view_{model}"),
    }


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: bool(request.user.has_perm(permission))
