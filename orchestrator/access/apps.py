"""Access as a Django app."""

from orchestrator.core.frame import MusterApp, SidebarItem


class AccessConfig(MusterApp):
    name = "orchestrator.access"
    verbose_name = "Access"

    kinds = ("orchestrator.access.tokens.KINDS",)
    sidebar = (
        SidebarItem("Access", "API tokens", "key", "access.apitoken"),
        SidebarItem("Access", "Users", "person", "auth.user"),
        SidebarItem("Access", "Groups", "group", "auth.group"),
    )
