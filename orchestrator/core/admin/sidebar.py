"""The admin's sidebar: the items of all apps, in groups, in the order of the apps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib import admin
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
        "permission": _may_view(item.model),
    }


def _may_view(model: str) -> Callable[[HttpRequest], bool]:
    """As the model's own pages say."""
    page = admin.site.get_model_admin(apps.get_model(model))
    return lambda request: bool(page.has_view_permission(request))
