"""Policies as a Django app: what it brings to the frame."""

from orchestrator.core import admission
from orchestrator.core.frame import (
    AUTHOR,
    INSTALLATION,
    OPERATOR,
    VIEWER,
    Feed,
    Maintenance,
    MusterApp,
    Named,
    PackContent,
    Permission,
    Retention,
    SidebarItem,
)


class PoliciesConfig(MusterApp):
    name = "orchestrator.policies"
    verbose_name = "Policies"

    api_routers = (("/policies", "orchestrator.policies.api.policies.router"),)
    pack_contents = (
        PackContent(
            "policies",
            ("name",),
            check=Named("orchestrator.policies.definitions.check_file"),
            install=Named("orchestrator.policies.contents.install"),
        ),
    )
    permissions = (
        Permission(
            "policies.read",
            "See policies, their buckets, and who waits for them.",
            about=(INSTALLATION,),
            roles=(VIEWER, OPERATOR, AUTHOR),
        ),
        Permission(
            "policies.change",
            "Make, change, enable, disable and remove policies, and install those of packs.",
            about=(INSTALLATION,),
            roles=(OPERATOR,),
        ),
    )
    maintenance = (
        Maintenance(
            "muster.wake_policies",
            Named("orchestrator.policies.maintenance.wake_policies"),
            "Wakes what waits for a policy that has places, and counts what runs uncounted.",
            is_slow=True,
        ),
    )
    when_clock_was_set_back = (Named("orchestrator.policies.maintenance.bring_forward"),)
    retention = (
        Retention(
            name="policy_buckets",
            days="keep_policy_buckets_days",
            model="policies.PolicyBucket",
            ended="used_at",
            old=Named("orchestrator.policies.retention.empty_buckets"),
        ),
    )
    feeds = (
        Feed(
            entity="policy",
            model="policies.Policy",
            permission="policies.read",
            about=Named("orchestrator.policies.feeds.policies"),
            columns=("updated_at", "retired_at"),
            is_named_by_state=False,
        ),
    )
    execution_facts = (Named("orchestrator.policies.shown.policies.of_execution"),)
    metrics = (Named("orchestrator.policies.metrics.families"),)
    metrics_described = ("orchestrator.policies.metrics.METRICS",)
    table_rights = ("orchestrator.policies.rights.TABLES",)
    sidebar = (SidebarItem("Work", "Policies", "speed", "policies.policy"),)
    kinds = ("orchestrator.policies.states.KINDS",)

    def ready(self) -> None:
        admission.fill(Named("orchestrator.policies.limits.Policies"))
