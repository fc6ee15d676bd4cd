"""The REST API, with one file for each noun."""

from django.utils.module_loading import import_string

from orchestrator.core import frame
from orchestrator.core.api.access import Undeclared
from orchestrator.core.api.application import MusterAPI
from orchestrator.core.api.bodies import StrictParser
from orchestrator.core.api.docs_page import DocsPage, for_known_callers

api = MusterAPI(
    title="Muster",
    version="1",
    description="Runs executions on a fleet of workers, and accounts for every one of them.",
    auth=Undeclared(),
    parser=StrictParser(),
    docs=DocsPage(),
    docs_decorator=for_known_callers,
)
for prefix, router in frame.collect(lambda app: app.api_routers):
    api.add_router(prefix, import_string(router))

plain_api = MusterAPI(
    title="Muster, for curl and jq",
    version="1",
    description="Investigations and the steps of tasks, with arrays instead of pages.",
    urls_namespace="plain-1",
    auth=Undeclared(),
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
"""Answers below `/v1`, see ADR 43."""
for prefix, router in frame.collect(lambda app: app.plain_routers):
    plain_api.add_router(prefix, import_string(router))
