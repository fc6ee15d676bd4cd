"""The page that shows the API's document, with nothing from another host."""

from __future__ import annotations

from ninja.openapi.docs import ABS_TPL_PATH, Swagger


class DocsPage(Swagger):
    """Swagger's page from the installed package.

    ninja shows the one that loads its scripts from elsewhere unless it is an installed app, and as
    an app it would be imported by every service: a fifth of what their start costs.
    """

    template_cdn = str(ABS_TPL_PATH / "swagger.html")
