"""Nothing acts for somebody without a permission: operations, pages, buttons, commands."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import FieldListFilter
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.auth.models import User
from django.core.management import get_commands, load_command_class
from django.db.models import BinaryField, JSONField, TextField
from django.test import RequestFactory
from django.urls import reverse
from django_celery_beat.models import PeriodicTask
from ninja import Router

from orchestrator.access import grants
from orchestrator.access.models import Grant
from orchestrator.core import authority, frame
from orchestrator.core.admin import lookups
from orchestrator.core.admin.guarded import Guarded
from orchestrator.core.api import api
from orchestrator.core.api.application import MusterAPI
from orchestrator.core.authority import NOWHERE, PermissionMissing
from orchestrator.core.errors import Forbidden
from orchestrator.core.frame import ADMIN, ROLES
from orchestrator.core.management import output
from orchestrator.core.management.pages.commands import verbs_of
from tests import commands
from tests.principals import ROOT, staff

SERVICES = {"demo", "up"}
"""Commands that act for nobody, and are no `MusterCommand`."""


def own_commands() -> list[tuple[str, Any]]:
    names = {app.name for app in frame.ours()}
    return [
        (name, load_command_class(app, name))
        for name, app in sorted(get_commands().items())
        if app in names
    ]


# --- commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "command"), own_commands())
def test_each_verb_of_a_command_declares_its_permission(name: str, command: Any) -> None:
    if name in SERVICES:
        assert not isinstance(command, output.MusterCommand)
        return
    verbs = [verb for verb, _, _ in verbs_of(command.create_parser("manage.py", name))] or [""]
    # the verbs of `drill` are drills, under another name
    assert set(command.permissions) == ({""} if name == "drill" else set(verbs))
    for permission in command.permissions.values():
        assert permission == output.NOBODY or permission in grants.permissions()


@pytest.mark.django_db
def test_verb_without_a_permission_is_refused() -> None:
    class Command(output.MusterCommand):
        requires_system_checks = ()

        def handle(self, *args: Any, **options: Any) -> None:
            raise AssertionError("it ran")

    with pytest.raises(Exception, match="No permission is declared") as refused:
        Command().execute(no_color=True, force_color=False, skip_checks=True)
    assert "declared" in str(refused.value)


@pytest.mark.django_db
def test_commands_ask_the_authorizer_for_whoever_runs_them(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    decide = authority._authorizer().authorize

    def note(who: Any, permission: str, place: Any) -> Any:
        asked.append((who.actor, permission))
        return decide(who, permission, place)

    monkeypatch.setattr(authority._authorizer(), "authorize", note)
    commands.printed("workers", "list")
    assert asked[0][0].startswith("cli")
    assert asked[0][1] == "workers.read"


# --- the admin -----------------------------------------------------------------------------------


def pages() -> list[Any]:
    admin.autodiscover()  # `settings.urls` does it, which nothing has imported yet
    return [pytest.param(page, id=str(model._meta)) for model, page in admin.site._registry.items()]


@pytest.mark.parametrize("page", pages())
def test_each_page_of_the_admin_declares_its_permissions(page: Any) -> None:
    assert isinstance(page, Guarded)
    declared = [page.view_permission]
    for name in ("add_permission", "change_permission", "delete_permission"):
        declared += [getattr(page, name)] if getattr(page, name) else []
    assert not [name for name in declared if name not in grants.permissions()]


@pytest.mark.parametrize("page", pages())
def test_each_button_and_list_action_of_the_admin_needs_a_permission(page: Any) -> None:
    names = {*page.actions_detail, *page.actions_row, *page.actions_list, *(page.actions or ())}
    for name in names:
        method = getattr(page, name)
        if method.__module__.startswith("django_celery_beat"):
            continue  # kept from who may not change the schedule by `get_actions`: see below
        assert method.allowed_permissions, name
        for permission in method.allowed_permissions:
            # its own rule: Django's are answered by `Guarded`, of the whole page
            assert f"has_{permission}_permission" in dir(type(page)), name


@pytest.mark.django_db
@pytest.mark.parametrize("page", pages())
def test_who_has_no_grant_sees_no_page_and_no_link(page: Any) -> None:
    somebody = staff("somebody")
    meta = page.model._meta
    for view in ("changelist", "add"):
        url = reverse(f"admin:{meta.app_label}_{meta.model_name}_{view}")
        assert somebody.get(url).status_code == 403
        assert url not in somebody.get(reverse("admin:index")).content.decode()


def contents(model: Any) -> list[str]:
    """The columns of a model, and of those it refers to, that may hold what no list shows."""
    kinds = (BinaryField, JSONField, TextField)
    return [
        f"{before}{field.name}"
        for before, fields in [
            ("", model._meta.fields),
            *(
                (f"{each.name}__", each.related_model._meta.fields)
                for each in model._meta.fields
                if each.is_relation
            ),
        ]
        for field in fields
        if isinstance(field, kinds) or field.name == "password"
    ]


@pytest.mark.parametrize("page", pages())
def test_contents_are_not_read_by_lookups_of_a_list(page: Any) -> None:
    for name in contents(page.model):
        for lookup in (name, f"{name}__startswith", f"{name}__x__startswith", f"{name}__isnull"):
            assert not page.lookup_allowed(lookup, "x"), lookup
    assert not page.lookup_allowed("pk__gt", "x")


@pytest.mark.django_db
@pytest.mark.parametrize("page", pages())
def test_filters_of_a_list_may_ask_what_they_read_and_nothing_else(page: Any, rf: Any) -> None:
    request = rf.get("/")
    request.user = User.objects.create_superuser("boss")
    for each in page.get_list_filter(request):
        if isinstance(each, type):
            made = each(request, {}, page.model, page)
        else:
            path, kind = (each, FieldListFilter.create) if isinstance(each, str) else each
            field = get_fields_from_path(page.model, path)[-1]
            made = kind(field, request, {}, page.model, page, field_path=path)
        expected = set(made.expected_parameters())
        assert lookups.of_filter(each, page.model) == expected
        assert all(page.lookup_allowed(name, "x", request) for name in expected)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("listing", "lookup"),
    [
        ("orchestrator_execution", "parameters__token__startswith"),
        ("orchestrator_execution", "result__startswith"),
        ("orchestrator_execution", "worker__name"),
        ("orchestrator_dlqentry", "snapshot__x__startswith"),
        ("workflows_step", "task__context__door__startswith"),
        ("workflows_step", "state"),
        ("automation_event", "no_such_column"),
    ],
)
def test_other_lookups_of_a_list_are_refused(listing: str, lookup: str) -> None:
    url = reverse(f"admin:{listing}_changelist")
    assert staff("ada", grants.Given("viewer")).get(url, {lookup: "a"}).status_code == 400


@pytest.mark.django_db
def test_who_only_sees_the_schedule_changes_nothing_of_it() -> None:
    viewer = staff("viewer", grants.Given("viewer"))
    task = PeriodicTask.objects.get(name="muster.check_timeouts")
    url = reverse("admin:django_celery_beat_periodictask_changelist")
    assert viewer.get(url).status_code == 200
    data = {"action": "disable_tasks", "_selected_action": [str(task.pk)]}
    viewer.post(url, data)
    task.refresh_from_db()
    assert task.enabled


@pytest.mark.django_db
def test_admin_asks_anew_in_every_request() -> None:
    ada = staff("ada", grants.Given("viewer"))
    url = reverse("admin:orchestrator_execution_changelist")
    assert ada.get(url).status_code == 200
    Grant.objects.all().delete()
    assert ada.get(url).status_code == 403


# --- the API -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_operation_that_declares_nothing_is_refused_to_everybody(token: str) -> None:
    router = Router()

    @router.get("/forgotten")
    def forgotten(request: Any) -> str:
        raise AssertionError("it ran")

    another = MusterAPI(auth=api.auth, urls_namespace="a test")
    another.add_router("", router)
    (bound,) = [r for r in another._get_bound_routers() if "/forgotten" in r.path_operations]
    (operation,) = bound.path_operations["/forgotten"].operations
    (gate,) = operation.auth_callbacks
    request = RequestFactory(headers={"authorization": f"Bearer {token}"}).get("/forgotten")
    with pytest.raises(Forbidden, match="No permission is declared"):
        gate(request)


# --- without an authorizer -----------------------------------------------------------------------


def test_without_an_authorizer_nobody_may_do_anything(settings: Any) -> None:
    settings.AUTHORIZER = ""
    assert not authority.may(ROOT, "executions.read")
    assert authority.reach(ROOT, "executions.read") == NOWHERE
    with pytest.raises(PermissionMissing, match=r"needs the permission executions\.read"):
        authority.require(authority.at_terminal(), "executions.read")


def test_permission_that_no_app_brings_is_an_error_and_not_a_yes() -> None:
    with pytest.raises(Exception, match=r"No app brings the permission 'executions\.reed'"):
        authority.may(ROOT, "executions.reed")


# --- roles ---------------------------------------------------------------------------------------


def test_roles_of_permissions_are_roles() -> None:
    for permission in grants.permissions().values():
        assert set(permission.roles) <= set(ROLES) - {ADMIN}


def test_two_permissions_are_in_no_role_but_admin() -> None:
    alone = {name for name, each in grants.permissions().items() if not each.roles}
    assert {"payloads.read", "actions.run_any_command"} <= alone
    for role in ROLES:
        has = {"payloads.read", "actions.run_any_command"} & grants.permissions_of(role)
        assert bool(has) is (role == ADMIN)
