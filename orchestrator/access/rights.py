"""The rights of each service to the tables of access, and to those of Django's users."""

from __future__ import annotations

from orchestrator.core.frame import ADD, ALL, CHANGE, READ, Rights, TableRights

NAMES = Rights(read=("id", "username", "is_active"))
OWNERS = Rights(read=("id", "username", "is_active", "is_superuser"))

TABLES = (
    # the login brake forgets
    TableRights(table="access_loginrecord", api=ALL),
    # sealed: without the ring, nothing of a value can be read from it. Requests are checked by the
    # API and by executors, claims open them
    TableRights(table="access_key", api=CHANGE, executor=READ, worker=READ),
    # whose keys those under user/ are
    TableRights(table="access_identity", api=CHANGE, executor=READ, worker=READ, notifier=READ),
    # executors request executions for the owners of rules, with the rights that these have now
    TableRights(table="access_grant", api=ALL, executor=READ, notifier=READ),
    # a notifier asks again and again whether tokens are good, and notes their use
    TableRights(
        table="access_apitoken",
        api=CHANGE,
        notifier=Rights(read=True, change=("last_used_at",)),
    ),
    # who claims an attempt makes its token, and cannot read it again
    TableRights(
        table="access_executiontoken",
        api=READ,
        executor=Rights(read=True, remove=True),
        worker=Rights(add=True),
        notifier=READ,
    ),
    TableRights(
        table="access_auditevent",
        api=ADD,
        executor=ADD,
        worker=Rights(add=True, read=("id",)),
        notifier=Rights(add=True, read=("id",)),
    ),
    # executors seal
    TableRights(table="access_auditseal", api=READ, executor=ADD),
    # a user is made inactive, and stays
    TableRights(table="auth_user", api=CHANGE, executor=OWNERS, worker=NAMES, notifier=OWNERS),
    TableRights(table="auth_user_groups", api=ALL),
    TableRights(table="auth_user_user_permissions", api=ALL),
    TableRights(table="auth_group", api=ALL),
    TableRights(table="auth_group_permissions", api=ALL),
    TableRights(table="auth_permission", api=READ),
    TableRights(table="django_session", api=ALL),
    # the admin's own journal: nobody removes a line
    TableRights(table="django_admin_log", api=ADD),
)
