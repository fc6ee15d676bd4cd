"""The admin's look. Its sidebar comes from the apps."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Muster",
    "SITE_HEADER": "Muster",
    "SITE_SUBHEADER": "accounts for every execution",
    "SITE_SYMBOL": "rule",
    "SITE_URL": None,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_HISTORY": False,  # Django's own log; each page has Muster's
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda request: static("muster/icon.svg"),
        }
    ],
    "STYLES": [lambda request: static("muster/admin.css")],
    "DASHBOARD_CALLBACK": "orchestrator.core.admin.dashboard.context",
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
        "navigation": "orchestrator.core.admin.sidebar.navigation",
    },
}
