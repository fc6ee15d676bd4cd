"""The console as a Django app: it has pages only."""

from orchestrator.core.frame import MusterApp


class ConsoleConfig(MusterApp):
    name = "orchestrator.console"
    verbose_name = "Console"
