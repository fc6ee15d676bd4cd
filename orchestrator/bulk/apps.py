"""Bulk orders as a Django app: what it brings to the frame."""

from orchestrator.core.frame import (
    AUTHOR,
    NAMESPACES,
    OPERATOR,
    PACKS,
    VIEWER,
    ExecutorPart,
    Feed,
    HotQueue,
    Life,
    MusterApp,
    Named,
    Permission,
    Retention,
)


class BulkConfig(MusterApp):
    name = "orchestrator.bulk"
    verbose_name = "Bulk orders"

    api_routers = (("/bulk", "orchestrator.bulk.api.orders.router"),)
    executor_parts = (
        ExecutorPart(
            HotQueue(Named("orchestrator.bulk.messages.queue"), "muster.bulk", "order_ids"),
            take=Named("orchestrator.bulk.working.take"),
            look=Named("orchestrator.bulk.working.look"),
        ),
    )
    retention = (
        Retention(
            name="bulk orders",
            days="keep_bulk_orders_days",
            model="bulk.BulkOrder",
            ended="ended_at",
            old=Named("orchestrator.bulk.retention.old_orders"),
            parts=("bulk.BulkPart.order", "bulk.Refusal.order"),
            at_once=20,
        ),
    )
    permissions = (
        Permission(
            "bulk.read",
            "See bulk orders: all of them without a scope, otherwise one's own.",
            about=(PACKS, NAMESPACES),
            roles=(VIEWER, OPERATOR, AUTHOR),
        ),
        Permission(
            "bulk.order",
            "Order in bulk, and stop orders. For each row, that of the verb is needed, too.",
            about=(PACKS, NAMESPACES),
            roles=(OPERATOR,),
        ),
    )
    feeds = (
        Feed(
            entity="bulk",
            model="bulk.BulkOrder",
            permission="bulk.read",
            about=Named("orchestrator.bulk.feeds.orders"),
            columns=("state", "position"),
        ),
    )
    metrics = (Named("orchestrator.bulk.metrics.families"),)
    metrics_described = ("orchestrator.bulk.metrics.METRICS",)
    table_rights = ("orchestrator.bulk.rights.TABLES",)
    kinds = ("orchestrator.bulk.states.KINDS",)
    lives = (
        Life(
            "Bulk orders",
            machine="orchestrator.bulk.states.ORDERS",
            begins="ordered",
            intro="A bulk order is one verb on all rows that matched a search, see "
            "[bulk orders](bulk.md). It ends once, and keeps what was refused.",
        ),
    )
