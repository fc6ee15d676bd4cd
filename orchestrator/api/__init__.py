"""The REST API: one file for each noun."""

from orchestrator.api import (
    actions,
    analytics,
    dlq,
    dlq_reports,
    executions,
    health,
    task_steps,
    tasks,
    templates,
    workers,
)
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
api.add_router("/executions", executions.router)
api.add_router("/tasks", tasks.router)
api.add_router("/tasks", task_steps.router)
api.add_router("/templates", templates.router)
api.add_router("/workers", workers.router)
api.add_router("/dlq", dlq.router)
api.add_router("/dlq", dlq_reports.router)
api.add_router("/analytics", analytics.router)
api.add_router("/actions", actions.router)
api.add_router("/health", health.router)
