"""Access as a Django app."""

from django.db.models.signals import post_migrate

from orchestrator.core.frame import (
    AUTHOR,
    INSTALLATION,
    OPERATOR,
    OWN,
    VIEWER,
    Maintenance,
    MusterApp,
    Named,
    Permission,
    SidebarItem,
)


class AccessConfig(MusterApp):
    name = "orchestrator.access"
    verbose_name = "Access"

    api_routers = (
        ("/tokens", "orchestrator.access.api.tokens.router"),
        ("/identities", "orchestrator.access.api.identities.router"),
        ("/keys", "orchestrator.access.api.keys.router"),
    )
    permissions = (
        Permission(
            "tokens.own",
            "See and revoke one's own tokens; make them in the admin.",
            about=(OWN,),
            roles=(VIEWER, OPERATOR, AUTHOR),
        ),
        Permission(
            "tokens.manage",
            "Make, rotate and revoke tokens of anybody, none that may do more than oneself.",
            about=(INSTALLATION,),
        ),
        Permission(
            "access.manage",
            "Make and disable identities and users; grant what one has oneself.",
            about=(INSTALLATION,),
        ),
        Permission("audit.read", "See and verify the audit.", about=(INSTALLATION,)),
        Permission(
            "audit.prune",
            "Move old events of the audit to a file; the database lets only its owner do it.",
            about=(INSTALLATION,),
        ),
        Permission(
            "keys.read",
            "See which keys there are; nothing shows a value.",
            roles=(OPERATOR, AUTHOR),
        ),
        Permission("keys.manage", "Create, rotate and revoke keys.", roles=(AUTHOR,)),
    )
    maintenance = (
        Maintenance(
            "muster.seal_audit",
            Named("orchestrator.access.audit.seal"),
            "Adds the newest events of the audit to its chain of hashes.",
            is_slow=True,
        ),
        Maintenance(
            "muster.prune_execution_tokens",
            Named("orchestrator.access.execution_tokens.prune"),
            "Removes tokens of executions that do not run any more.",
            interval="prune_interval_seconds",
            is_slow=True,
        ),
    )
    table_rights = ("orchestrator.access.rights.TABLES",)
    kinds = (
        "orchestrator.access.tokens.KINDS",
        "orchestrator.access.identities.KINDS",
        "orchestrator.access.keys.shown.KINDS",
        "orchestrator.access.audit.models.DECISION_KINDS",
    )
    sidebar = (
        SidebarItem("Access", "Keys", "lock", "access.key"),
        SidebarItem("Access", "Identities", "badge", "access.identity"),
        SidebarItem("Access", "API tokens", "key", "access.apitoken"),
        SidebarItem("Access", "Users", "person", "auth.user"),
        SidebarItem("Access", "Audit", "history", "access.auditevent"),
    )

    def ready(self) -> None:
        from orchestrator.access import (
            checks,  # noqa: F401 - registers them
            identities,
        )
        from orchestrator.access.audit import people
        from orchestrator.core import keyholder

        people.listen()
        identities.listen()
        # by its name, as the driver of PostgreSQL would make every command on SQLite slower
        renew = Named("orchestrator.access.privileges.postgresql.renew_grants")
        post_migrate.connect(renew, sender=self, weak=False)
        keyholder.hold(Named("orchestrator.access.keys.Holder"))
