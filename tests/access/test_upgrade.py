"""An installation made before tokens had owners: what it has goes on, and `check` says so."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from orchestrator.access import identities, tokens
from orchestrator.access.checks import ACCESS
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import clock
from orchestrator.core.models import Action, Execution
from tests import principals
from tests.core.api.client import Caller
from tests.principals import ROOT, given

TEXT = "mst_" + "Abc4" * 10 + "xyz"
"""As texts were: 47 characters, without a checksum."""


def findings() -> dict[str, str]:
    return {str(found.id): found.msg for found in run_checks(tags=[ACCESS])}


@pytest.fixture
def before(database: str, sent: Any) -> None:
    """The database as an earlier version made it: two tokens, and a request of one of them that has
    ended."""
    call_command("migrate", "access", "0001", verbosity=0)
    call_command("migrate", "orchestrator", "0001", verbosity=0)
    executor = MigrationExecutor(connection)
    targets = [("access", "0001_initial"), ("orchestrator", "0001_initial")]
    old = executor.loader.project_state(targets).apps
    now = clock.now()
    for name, text in (("ci", TEXT), ("up", TEXT[::-1])):
        old.get_model("access", "ApiToken").objects.create(
            name=name, prefix=text[:12], digest=tokens._digest(text), created_at=now
        )
    pack = old.get_model("orchestrator", "Pack").objects.create(
        name="core", version="1.0", path="/nowhere", installed_at=now
    )
    for ref in ("core.echo", "core.shell"):
        old.get_model("orchestrator", "Action").objects.create(
            pack=pack, ref=ref, runtime="python", entry_point="a:b", updated_at=now
        )
    old.get_model("orchestrator", "Execution").objects.create(
        action=old.get_model("orchestrator", "Action").objects.get(ref="core.echo"),
        action_ref="core.echo",
        requested_by="ci",
        idempotency_key="k",
        status="cancelled",
        reason="cancelled",
        timeout_seconds=60,
        created_at=now,
        ended_at=now,
        deadline_at=now + timedelta(days=1),
    )
    call_command("migrate", verbosity=0)


@pytest.mark.slow
@pytest.mark.usefixtures("before")
def test_earlier_installation_goes_on() -> None:
    caller = Caller(TEXT)
    # who is who
    owner = Identity.objects.get()
    assert (str(owner), owner.is_legacy) == ("service:legacy-tokens", True)
    assert [str(each) for each in identities.given_to(owner)] == ["admin"]
    assert {row.identity_id for row in ApiToken.objects.all()} == {owner.pk}
    # what they may do
    listed = caller.get("/executions").json()["items"]
    assert [row["idempotency_key"] for row in listed] == ["k"]
    assert caller.post("/executions", {"action_ref": "core.shell"}).status_code == 201
    assert Execution.objects.order_by("pk").last().requested_by == "ci"  # type: ignore[union-attr]
    # a key that was used before is used
    body = {"action_ref": "core.echo", "idempotency_key": "k"}
    first = caller.post("/executions", body)
    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    # our packs' dangerous actions are known as such before the packs are installed again
    assert Action.objects.get(ref="core.shell").dangerous
    assert not Action.objects.get(ref="core.echo").dangerous
    # what had ended is still final
    with pytest.raises(IntegrityError), transaction.atomic():
        Execution.objects.filter(idempotency_key="k").update(requested_by="somebody")
    # the check names the tokens until they are gone; to go back and forth again takes a minute
    found = findings()
    assert found["muster.W004"].endswith("had owners may do everything: ci, up.")
    assert found["muster.W005"] == "Tokens that never expire: ci, up."
    for token in ApiToken.objects.filter(name__in=("ci", "up")):
        tokens.revoke(token, by=ROOT, now=clock.now())
    assert findings() == {}


@pytest.mark.django_db
def test_users_of_before_get_the_identities_that_they_lack() -> None:
    for name in ("boss", "ada"):
        User.objects.create_user(name)
    Identity.objects.filter(user__username="ada").delete()
    import_module("orchestrator.access.migrations.0009_identities_of_users").make(
        apps, connection.schema_editor()
    )
    assert {str(row) for row in Identity.objects.all()} == {"user:boss", "user:ada"}
    ada = Identity.objects.get(user__username="ada")
    assert ada.user is not None
    assert ada.created_at == ada.user.date_joined


@pytest.mark.django_db
def test_check_is_content_with_a_new_installation() -> None:
    principals.token("ci", given("admin"))
    User.objects.create_superuser("boss", password="a-made-up-password")
    assert findings() == {}


@pytest.mark.django_db
def test_check_names_staff_who_see_nothing() -> None:
    for name in ("ada", "bob"):
        User.objects.create_user(name, is_staff=True)
    identities.grant(
        identities.of_user("bob", now=clock.now()), given("viewer"), by=ROOT, now=clock.now()
    )
    assert findings()["muster.W006"].endswith("nothing in the admin: ada.")


@pytest.mark.usefixtures("database")
def test_check_before_the_first_migration_says_nothing_of_access() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE access_apitoken RENAME TO elsewhere")
    try:
        assert findings() == {}
    finally:
        connection.rollback() if connection.in_atomic_block else None
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO access_apitoken")
