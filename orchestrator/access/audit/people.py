"""The audit of people: their logins, what they change in the admin, and their accounts.

Django says all of this by signals, whichever page or command it comes from.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import m2m_changed, post_delete, post_save

from orchestrator.access.audit.recording import Actor, Decision, record
from orchestrator.access.audit.requests import of_user, whoever

LOGIN = "session.login"
ACCOUNTS = "access.manage"

AT_LOGIN = {"last_login"}
"""The columns that a login itself writes to the account."""

ORDERS = {ADDITION: "added", DELETION: "deleted"}


def listen() -> None:
    """Connect to Django's signals."""
    user_logged_in.connect(_logged_in)
    user_logged_out.connect(_logged_out)
    user_login_failed.connect(_login_failed)
    post_save.connect(_changed_in_admin, sender=LogEntry)
    users = get_user_model()
    post_save.connect(_account_saved, sender=users)
    post_delete.connect(_account_deleted, sender=users)
    for relation in (users.groups, users.user_permissions):
        m2m_changed.connect(_rights_changed, sender=relation.through)


def _logged_in(user: Any, **_: Any) -> None:
    record(LOGIN, actor=of_user(user), object_kind="user", object_id=user.get_username())


def _logged_out(user: Any, **_: Any) -> None:
    if user is not None:  # the session may have expired before
        record(
            "session.logout",
            actor=of_user(user),
            object_kind="user",
            object_id=user.get_username(),
        )


def _login_failed(credentials: dict[str, Any], request: Any = None, **_: Any) -> None:
    if getattr(request, "login_wait_seconds", 0):
        return  # refused unseen, as it came too early: strangers could fill the table
    name = str(credentials.get("username", ""))
    record(
        LOGIN,
        # whoever it was: the name is only what was typed
        actor=Actor("stranger", "stranger"),
        object_kind="user",
        object_id=name,
        decision=Decision.DENIED,
        reason="wrong name or password",
    )


def _changed_in_admin(instance: LogEntry, created: bool, **_: Any) -> None:
    """Take a line of the admin's journal, which every button and form of it writes."""
    model = instance.content_type.model_class() if instance.content_type else None
    if not created or model is get_user_model():
        return
    kind = instance.content_type.model if instance.content_type else ""
    done = ORDERS.get(instance.action_flag, instance.get_change_message() or "changed")
    record(
        f"admin.{kind}",
        actor=of_user(instance.user),
        object_kind=kind,
        object_id=instance.object_id or "",
        reason=f"{instance.object_repr}: {done}",
    )


def _account_saved(
    instance: Any, created: bool, raw: bool, update_fields: Any = None, **_: Any
) -> None:
    if not (raw or (update_fields is not None and set(update_fields) <= AT_LOGIN)):
        _account(instance, "created" if created else "changed")


def _account_deleted(instance: Any, **_: Any) -> None:
    _account(instance, "deleted")


def _rights_changed(instance: Any, action: str, reverse: bool, **_: Any) -> None:
    if action.startswith("post_") and not reverse:
        _account(instance, "rights changed")


def _account(user: Any, what: str) -> None:
    flags = [name for name in ("is_superuser", "is_staff", "is_active") if getattr(user, name)]
    record(
        ACCOUNTS,
        actor=whoever(),
        object_kind="user",
        object_id=user.get_username(),
        reason=f"{what}; {', '.join(flags) or 'inactive'}",
    )
