"""Notifications as a Django app: what it brings to the frame."""

from django.db.models.signals import post_migrate, pre_migrate

from orchestrator.core.frame import (
    AUTHOR,
    OPERATOR,
    OWN,
    VIEWER,
    Maintenance,
    MusterApp,
    Named,
    NewsListener,
    Permission,
)


class NotificationsConfig(MusterApp):
    name = "orchestrator.notifications"
    verbose_name = "Notifications"

    api_routers = (("/stream", "orchestrator.notifications.api.tickets.router"),)
    permissions = (
        Permission(
            "stream.read",
            "Follow what changes. Each change is told only to who may see what changed.",
            about=(OWN,),
            roles=(VIEWER, OPERATOR, AUTHOR),
        ),
    )
    maintenance = (
        Maintenance(
            "muster.prune_changes",
            Named("orchestrator.notifications.journal.prune"),
            "Removes what triggers noted of rare changes, after an hour.",
            interval="prune_interval_seconds",
            is_slow=True,
        ),
    )
    news_listeners = (
        NewsListener(
            wants=Named("orchestrator.notifications.demand.exists"),
            send=Named("orchestrator.notifications.waking.tell"),
        ),
    )
    metrics = (Named("orchestrator.notifications.metrics.families"),)
    metrics_described = ("orchestrator.notifications.metrics.METRICS",)
    table_rights = ("orchestrator.notifications.rights.TABLES",)

    def ready(self) -> None:
        from orchestrator.notifications import journal

        pre_migrate.connect(journal.drop, sender=self)
        post_migrate.connect(journal.make, sender=self)
