"""The REST API: one file for each noun."""

from django.utils.module_loading import import_string

from orchestrator.core import frame
from orchestrator.core.api.access import authentication
from orchestrator.core.api.application import MusterAPI
from orchestrator.core.api.bodies import StrictParser
from orchestrator.core.api.docs_page import DocsPage

api = MusterAPI(
    title="Muster",
    version="1",
    description="Runs executions on a fleet of workers, and accounts for every one of them.",
    auth=authentication(),
    parser=StrictParser(),
    docs=DocsPage(),
)
for prefix, router in frame.collect(lambda app: app.api_routers):
    api.add_router(prefix, import_string(router))
