"""The admin's look and its sidebar, ordered by what one comes for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: bool(request.user.has_perm(permission))


def _item(title: str, icon: str, model: str) -> dict[str, Any]:
    """A link to a model's list, for whoever may view it; `model` is `app_label_name`."""
    app, name = model.rsplit("_", 1)
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{model}_changelist"),
        "permission": _may(f"{app}.view_{name}"),
    }


def _group(title: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "separator": True, "items": list(items)}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Muster",
    "SITE_HEADER": "Muster",
    "SITE_SUBHEADER": "accounts for every execution",
    "SITE_SYMBOL": "rule",
    "SITE_URL": None,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "orchestrator.admin.dashboard.context",
    "COLORS": {
        "primary": {
            "50": "oklch(97.1% .014 230)",
            "100": "oklch(94% .03 230)",
            "200": "oklch(88.5% .06 230)",
            "300": "oklch(81% .1 230)",
            "400": "oklch(72% .13 232)",
            "500": "oklch(62% .14 236)",
            "600": "oklch(52% .13 240)",
            "700": "oklch(45% .115 242)",
            "800": "oklch(39% .095 242)",
            "900": "oklch(34% .08 243)",
            "950": "oklch(25% .06 244)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "items": [
                    {
                        "title": "Overview",
                        "icon": "dashboard",
                        "link": reverse_lazy("admin:index"),
                    },
                ],
            },
            _group(
                "Work",
                _item("Executions", "play_circle", "orchestrator_execution"),
                _item("Tasks", "account_tree", "orchestrator_task"),
                _item("Steps", "checklist", "orchestrator_step"),
                _item("Investigations", "troubleshoot", "orchestrator_investigationqueue"),
                _item("DLQ entries", "mail_off", "orchestrator_dlqentry"),
            ),
            _group("Fleet", _item("Workers", "dns", "orchestrator_worker")),
            _group(
                "Catalogue",
                _item("Packs", "inventory_2", "orchestrator_pack"),
                _item("Actions", "bolt", "orchestrator_action"),
                _item("Task templates", "schema", "orchestrator_tasktemplate"),
            ),
            _group(
                "Schedule",
                _item("Periodic tasks", "schedule", "django_celery_beat_periodictask"),
                _item("Intervals", "timer", "django_celery_beat_intervalschedule"),
                _item("Crontabs", "calendar_month", "django_celery_beat_crontabschedule"),
            ),
            _group(
                "Access",
                _item("API tokens", "key", "orchestrator_apitoken"),
                _item("Users", "person", "auth_user"),
                _item("Groups", "group", "auth_group"),
            ),
        ],
    },
}
