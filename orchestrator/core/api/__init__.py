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
