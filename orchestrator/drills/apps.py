"""Drills as a Django app: it has commands only."""

from orchestrator.core.frame import INSTALLATION, MusterApp, Permission


class DrillsConfig(MusterApp):
    name = "orchestrator.drills"
    verbose_name = "Drills"

    permissions = (
        Permission(
            "drills.run", "Test this installation's promise by drills.", about=(INSTALLATION,)
        ),
    )
