"""The REST API: one file for each noun."""

from django.utils.module_loading import import_string

from orchestrator import frame
from orchestrator.api.access import BearerToken
from orchestrator.api.application import MusterAPI
from orchestrator.api.bodies import StrictParser
from orchestrator.api.docs_page import DocsPage

api = MusterAPI(
    title="Muster",
    version="1",
    description="Runs executions on a fleet of workers, and accounts for every one of them.",
    auth=BearerToken(),
    parser=StrictParser(),
    docs=DocsPage(),
)
for prefix, router in frame.collect(lambda app: app.api_routers):
    api.add_router(prefix, import_string(router))
