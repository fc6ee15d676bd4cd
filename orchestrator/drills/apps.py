"""Drills as a Django app: it has commands only."""

from orchestrator.core.frame import MusterApp


class DrillsConfig(MusterApp):
    name = "orchestrator.drills"
    verbose_name = "Drills"
