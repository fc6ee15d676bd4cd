"""The audit: what is written of whom, and that nobody changes it unseen."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from orchestrator.access import audit, tokens
from orchestrator.access.audit import chain, recording, requests
from orchestrator.access.audit.chain import Head
from orchestrator.access.audit.models import AuditEvent, AuditSeal
from orchestrator.access.audit.requests import AuditedRequests
from orchestrator.core import finality
from orchestrator.core.authority import EVERYWHERE, Decision, Place
from orchestrator.core.frame import PACKS
from tests import commands, principals
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.principals import given

run, document, refused = commands.of("audit")
items = partial(commands.items, "audit")

ADA = audit.Actor("user", "user:ada", "1")


def note(permission: str = "executions.cancel", **more: Any) -> AuditEvent:
    return audit.record(permission, **{"actor": ADA, "now": NOW, **more})


def events() -> list[AuditEvent]:
    return list(AuditEvent.objects.order_by("pk"))


def last() -> AuditEvent:
    return events()[-1]


def sealed(number: int) -> list[AuditEvent]:
    made = [note(object_id=str(each)) for each in range(number)]
    audit.seal(now=NOW)
    return made


def as_owner(statement: str, *parameters: Any) -> None:
    """Past the triggers, as whoever owns the tables could."""
    with (
        transaction.atomic(),
        finality.lifted(connection, [AuditEvent, AuditSeal]),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement, parameters)


# --- nobody changes it ---------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("table", ["access_auditevent", "access_auditseal"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET id = id", "DELETE FROM {}"])
def test_events_and_seals_are_final(table: str, statement: str) -> None:
    sealed(2)
    with pytest.raises(IntegrityError, match="is final"), transaction.atomic():
        connection.cursor().execute(statement.format(table))
    assert audit.verify().verified == 2


@pytest.mark.usefixtures("database")
def test_triggers_are_back_after_they_were_lifted() -> None:
    sealed(1)
    as_owner("UPDATE access_auditevent SET reason = 'x'")
    with pytest.raises(IntegrityError, match="is final"), transaction.atomic():
        connection.cursor().execute("UPDATE access_auditevent SET reason = 'y'")


# --- the chain -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_untouched_chain_is_clean() -> None:
    sealed(3)
    sealed(chain.BATCH_SIZE + 2)
    note()
    found = audit.verify()
    assert (found.fault, found.verified, found.unsealed) == ("", chain.BATCH_SIZE + 5, 1)
    assert found.head == chain.head()


COLUMNS = [str(field.column) for field in AuditEvent._meta.concrete_fields if field.column != "id"]


@pytest.mark.usefixtures("database")
def test_edited_event_is_named_whichever_column_it_was() -> None:
    made = sealed(5)
    for column in COLUMNS:
        old = AuditEvent.objects.values_list(column, flat=True).get(pk=made[2].pk)
        new = NOW + timedelta(seconds=1) if column == "at" else "x"
        as_owner(f"UPDATE access_auditevent SET {column} = %s WHERE id = %s", new, made[2].pk)  # noqa: S608
        fault = audit.verify().fault
        assert fault.startswith(f"event {made[2].pk}, sealed at 3"), column
        assert fault.endswith("was edited"), column
        as_owner(f"UPDATE access_auditevent SET {column} = %s WHERE id = %s", old, made[2].pk)  # noqa: S608
        assert audit.verify().fault == "", column


@pytest.mark.usefixtures("database")
def test_first_of_several_faults_is_named() -> None:
    made = sealed(9)
    for each in (made[6], made[3]):
        as_owner("UPDATE access_auditevent SET actor = 'eve' WHERE id = %s", each.pk)
    assert f"event {made[3].pk}, sealed at 4" in audit.verify().fault


@pytest.mark.usefixtures("database")
def test_removed_event_is_named_also_at_the_end() -> None:
    made = sealed(4)
    as_owner("DELETE FROM access_auditevent WHERE id = %s", made[3].pk)
    assert audit.verify().fault == f"event {made[3].pk}, sealed at 4, was removed"
    as_owner("DELETE FROM access_auditevent WHERE id = %s", made[0].pk)
    assert audit.verify().fault == f"event {made[0].pk}, sealed at 1, was removed"


@pytest.mark.usefixtures("database")
def test_removed_and_edited_seals_are_named() -> None:
    made = sealed(4)
    as_owner("UPDATE access_auditseal SET hash = %s WHERE id = 2", "0" * 64)
    assert f"event {made[1].pk}, sealed at 2" in audit.verify().fault
    as_owner("DELETE FROM access_auditseal WHERE id = 2")
    assert audit.verify().fault == "the seals from 2 to 2 are missing"


@pytest.mark.usefixtures("database")
def test_chain_that_the_owner_wrote_anew_shows_by_a_hash_that_was_noted_before() -> None:
    made = sealed(4)
    noted = chain.head()
    as_owner("UPDATE access_auditevent SET actor = 'eve' WHERE id = %s", made[1].pk)
    as_owner("DELETE FROM access_auditseal WHERE id >= 2")
    audit.seal(now=NOW)
    assert audit.verify().fault == "", "by itself it is a chain like any other"
    assert "was written again" in audit.verify(expected=[noted]).fault
    as_owner("DELETE FROM access_auditseal WHERE id >= 3")
    assert audit.verify(expected=[noted]).fault == "the seals from 3 to 4 are missing"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_event_that_is_committed_after_later_ones_is_sealed_too(database: str) -> None:
    """SQLite has one writer at a time: there, ids are in the order of commits."""
    began, go_on = threading.Event(), threading.Event()

    def be_slow() -> None:
        with transaction.atomic():
            note(object_id="slow")
            began.set()
            go_on.wait(60)
        connections.close_all()

    slow = threading.Thread(target=be_slow)
    slow.start()
    began.wait(60)
    sealed(3)
    go_on.set()
    slow.join()
    audit.seal(now=NOW)
    found = audit.verify()
    assert (found.fault, found.verified, found.unsealed) == ("", 4, 0)
    assert AuditEvent.objects.get(object_id="slow").pk < events()[-1].pk
    assert AuditSeal.objects.get(position=4).event_id == events()[0].pk


@pytest.mark.usefixtures("database")
def test_two_who_seal_at_once_make_one_chain() -> None:
    for each in range(40):
        note(object_id=str(each))
    ready = threading.Barrier(4)

    def seal() -> None:
        ready.wait(60)
        try:
            audit.seal(now=NOW)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=seal) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit.seal(now=NOW)
    found = audit.verify()
    assert (found.fault, found.verified, found.unsealed) == ("", 40, 0)


# --- retention -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_old_events_leave_into_a_file_and_the_chain_holds(tmp_path: Path) -> None:
    note(object_id="old", now=NOW - timedelta(days=400))
    note(object_id="old", now=NOW - timedelta(days=399))
    made = sealed(3)
    kept = tmp_path / "old.jsonl"
    before = f"{NOW - timedelta(days=30):%Y-%m-%d}"
    assert "Removed up to 2:" in run("prune", "--before", before, "--output", str(kept))

    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(line["object_id"], line["position"]) for line in lines] == [("old", 1), ("old", 2)]
    assert [event.pk for event in events()[:3]] == [each.pk for each in made]
    assert (last().permission, last().object_id) == (
        "audit.pruned",
        f"2:{lines[-1]['hash']}",
    )
    audit.seal(now=NOW)
    assert audit.verify() == chain.Verification(chain.head(), 4, 0)

    as_owner("UPDATE access_auditevent SET actor = 'eve' WHERE id = %s", made[0].pk)
    assert f"event {made[0].pk}, sealed at 3" in audit.verify().fault


@pytest.mark.usefixtures("database")
def test_beginning_that_was_removed_by_hand_is_a_fault() -> None:
    made = sealed(4)
    as_owner("DELETE FROM access_auditevent WHERE id <= %s", made[1].pk)
    as_owner("DELETE FROM access_auditseal WHERE id <= 2")
    assert audit.verify().fault == "the seals from 1 to 2 are missing"


@pytest.mark.usefixtures("database")
def test_nothing_is_pruned_from_a_chain_that_does_not_hold(tmp_path: Path) -> None:
    made = sealed(3)
    as_owner("UPDATE access_auditevent SET actor = 'eve' WHERE id = %s", made[2].pk)
    said = refused("prune", "--before", "2999-01-01", "--output", str(tmp_path / "x"))
    assert "The chain does not hold" in said
    assert len([event for event in events() if event.actor != last().actor]) == 3
    assert not (tmp_path / "x").exists()


@pytest.mark.django_db
def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    sealed(2)
    (tmp_path / "x").write_text("precious")
    said = refused("prune", "--before", "2999-01-01", "--output", str(tmp_path / "x"))
    assert "File exists" in said
    assert (tmp_path / "x").read_text() == "precious"
    assert audit.verify().verified == 2


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_verify_says_what_it_found_and_fails_for_a_fault() -> None:
    made = sealed(3)
    assert "3 events are as they were sealed" in run("verify")
    assert document("verify")["verified"] == 3
    head = str(chain.head())
    assert "3 events" in run("verify", "--expect", head)
    as_owner("UPDATE access_auditevent SET decision = 'denied' WHERE id = %s", made[0].pk)
    said = refused("verify")
    assert said.startswith(f"The audit was changed: event {made[0].pk}, sealed at 1")


@pytest.mark.django_db
def test_export_is_a_line_of_json_for_each_event_that_can_be_checked_elsewhere() -> None:
    sealed(2)
    note(object_id="new", now=NOW + timedelta(days=1))
    lines = [json.loads(line) for line in run("export").splitlines()]
    assert [line["position"] for line in lines] == [1, 2, None]
    assert lines[1]["previous"] == lines[0]["hash"]
    assert lines[0]["previous"] == audit.GENESIS
    later = run("export", "--since", f"{NOW + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}")
    assert [json.loads(line)["object_id"] for line in later.splitlines()] == ["new"]
    assert len(run("export", "--until", f"{NOW + timedelta(hours=1):%Y-%m-%d}").splitlines()) in (
        0,
        2,
    )


@pytest.mark.django_db
def test_list_is_filtered_and_shows_no_control_characters() -> None:
    note(object_kind="execution", object_id="1")
    note("tokens.create", actor=audit.Actor("user", "user:\x1b[31meve"), decision="denied")
    assert "\x1b" not in run("list")
    assert [each["permission"] for each in items("list", "--decision", "denied")] == [
        "tokens.create"
    ]
    assert [each["object_id"] for each in items("list", "--actor", "user:ada")] == ["1"]
    assert items("list", "--since", "2999-01-01") == []


@pytest.mark.parametrize("wrong", ["1", "x:y", "1:abc"])
def test_wrong_end_of_a_chain_is_refused(wrong: str) -> None:
    with pytest.raises(Exception, match="expected POSITION:HASH"):
        run("verify", "--expect", wrong)


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_event_is_undone_with_the_change_that_it_tells_of() -> None:
    with transaction.atomic():
        note()
        transaction.set_rollback(True)
    assert events() == []


@pytest.mark.usefixtures("database")
def test_text_of_strangers_is_cut_and_cleaned() -> None:
    event = note(object_id="\0\x1b" + "é" * 500, reason="\ud800" * 500)
    event.refresh_from_db()
    assert len(event.object_id) == 200
    assert event.object_id.startswith("\\x00\\x1bé")
    assert event.reason.isprintable()


@pytest.mark.usefixtures("database")
def test_events_that_come_by_the_hundred_are_written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    # one that an earlier test has started may be connected to that test's database
    monkeypatch.setattr(recording, "_the_writer", None)
    for each in range(300):
        recording.record_soon("executions.run", actor=ADA, object_id=str(each), now=NOW)
    assert audit.flush(10)
    assert sorted(int(event.object_id) for event in events()) == list(range(300))


@pytest.mark.usefixtures("database")
def test_events_wait_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "PAUSE_AFTER_ERROR_SECONDS", 0.01)
    failures = iter([DatabaseError("away"), DatabaseError("away")])
    insert: Callable[..., Any] = recording._insert

    def fail_twice(rows: Any) -> Any:
        for error in failures:
            raise error
        return insert(rows)

    monkeypatch.setattr(recording, "_insert", fail_twice)
    monkeypatch.setattr(recording, "_the_writer", None)
    recording.record_soon("executions.run", actor=ADA, now=NOW)
    assert audit.flush(10)
    assert len(events()) == 1


@pytest.mark.django_db
def test_full_queue_makes_the_request_write_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def put(self, row: Any) -> bool:
            return False

    monkeypatch.setattr(recording, "_writer", Full)
    recording.record_soon("executions.run", actor=ADA, now=NOW)
    assert len(events()) == 1


# --- requests ------------------------------------------------------------------------------------


CI = principals.principal(given("operator"))
HERE = Place(PACKS, "billing")
API = "/api/v1/executions/1/cancel"


def answered(
    status: int = 200, *permissions: str, method: str = "POST", may: bool = True, path: str = API
) -> None:
    """A request that was held to these permissions, and then answered like this."""

    def view(request: Any) -> HttpResponse:
        for permission in permissions:
            for place in (None, HERE):
                audit.decided(Decision(CI, permission, place, may, EVERYWHERE))
            audit.required(Decision(CI, permission, None, may, EVERYWHERE))
        return HttpResponse(status=status)

    AuditedRequests(view)(RequestFactory().generic(method, path))


@pytest.mark.django_db
def test_allowed_change_is_one_event_with_all_that_is_known() -> None:
    answered(202, "executions.cancel")
    event = last()
    assert len(events()) == 1
    assert (event.actor, event.permission) == (CI.actor, "executions.cancel")
    assert (event.object_kind, event.reason, event.decision) == (
        *("executions", "packs billing", "allowed"),
    )
    assert event.address == "127.0.0.1"
    assert len(event.request_id) == 32


@pytest.mark.django_db
def test_change_through_the_plain_face_is_the_same_event() -> None:
    for path in ("/api/v1/dlq/entry/7", "/v1/dlq/entry/7"):
        answered(200, "dlq.change", method="PATCH", path=path)
        assert (last().permission, last().object_kind) == ("dlq.change", "dlq")
    assert len(events()) == 2


@pytest.mark.django_db
def test_refusal_is_an_event() -> None:
    answered(403, "executions.cancel", may=False)
    assert (last().permission, last().decision) == ("executions.cancel", "denied")
    assert last().reason == "packs billing"


@pytest.mark.django_db
@pytest.mark.parametrize("status", [302, 404, 409, 422])
def test_request_that_changed_nothing_is_no_event(status: int) -> None:
    answered(status, "executions.cancel")
    assert events() == []


@pytest.mark.django_db
def test_change_whose_outcome_is_unknown_is_an_event_that_says_so() -> None:
    answered(503, "executions.cancel")
    assert last().reason == "packs billing (answered 503)"


@pytest.mark.django_db
def test_reading_is_no_event_unless_it_is_of_payloads() -> None:
    answered(200, "executions.read", method="GET")
    assert events() == []
    answered(200, "executions.read", "payloads.read", method="GET")
    assert [event.permission for event in events()] == ["payloads.read"]
    answered(201, "executions.run", "payloads.read")
    assert [event.permission for event in events()] == ["payloads.read", "executions.run"]


@pytest.mark.django_db
def test_what_a_page_asks_to_draw_its_buttons_is_no_event() -> None:
    answered(200, "executions.cancel", path="/admin/orchestrator/execution/1/cancel/")
    assert events() == []


@pytest.mark.django_db
def test_refused_stranger_is_no_event_as_strangers_could_fill_the_table() -> None:
    request = RequestFactory().post("/admin/login/")
    AuditedRequests(lambda _: HttpResponse(status=403))(request)
    assert events() == []


@pytest.mark.django_db
def test_request_has_the_id_that_its_caller_gave_if_it_is_one() -> None:
    def answered_id(given: str) -> str:
        request = RequestFactory().get("/", headers={"X-Request-ID": given})
        return AuditedRequests(lambda _: HttpResponse())(request)["X-Request-ID"]

    assert answered_id("abc-1") == "abc-1"
    for wrong in ("a b\r\nX: y", "x" * 65, ""):
        assert answered_id(wrong).isalnum(), wrong


@pytest.mark.django_db
def test_audit_that_cannot_be_written_is_logged_and_the_answer_stands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(requests, "record", fail)
    answered(202, "executions.cancel")
    assert "audit not written" in caplog.text
    assert "executions.cancel" in caplog.text


@pytest.mark.parametrize(("failure", "lines"), [(DatabaseError("no table"), 0), (OSError(), 1)])
def test_command_that_the_database_has_failed_says_so_once(
    failure: Exception,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise DatabaseError("no table")

    monkeypatch.setattr(requests, "record", fail)
    with suppress(type(failure)), requests.watched_command("core.echo"):
        audit.required(Decision(CI, "executions.run", None, True, EVERYWHERE))
        raise failure
    assert caplog.text.count("audit not written") == lines


# --- with the authorizer -------------------------------------------------------------------------


@pytest.mark.django_db
def test_change_over_the_api_is_an_event_of_its_token(sent: Any) -> None:
    make_action("core.echo")
    caller = principals.caller("ci", given("operator"))
    before = len(events())
    caller.client.defaults["HTTP_X_REQUEST_ID"] = "mine"
    answer = caller.post("/executions", {"action_ref": "core.echo"})
    assert answer.status_code == 201
    assert len(events()) == before + 1
    event = last()
    assert (event.actor_kind, event.actor, event.request_id) == ("service", "ci", "mine")
    assert event.actor_id == str(principals.service("ci").pk)
    assert event.token_prefix.startswith("mst_")
    assert (event.permission, event.reason) == ("executions.run", "packs core")
    assert (event.object_kind, event.object_id) == ("executions", answer.json()["id"])


@pytest.mark.django_db
def test_every_refusal_of_the_api_is_an_event() -> None:
    caller = principals.caller("ci", given("viewer"))
    assert caller.post("/executions", {"action_ref": "core.echo"}).status_code == 403
    assert (last().permission, last().decision) == ("executions.run", "denied")
    assert (last().actor, last().actor_kind) == ("ci", "service")
    number = len(events())
    assert principals.caller("other", given("viewer")).get("/executions").status_code == 200
    assert "denied" not in {event.decision for event in events()[number:]}


@pytest.mark.django_db
def test_missing_permission_to_run_any_command_is_what_the_event_says(sent: Any) -> None:
    make_action("core.shell", dangerous=True)
    caller = principals.caller("ci", given("operator"))
    answer = caller.post("/executions", {"action_ref": "core.shell"})
    assert answer.status_code == 403, answer.content
    assert (last().permission, last().decision) == ("actions.run_any_command", "denied")


@pytest.mark.django_db
def test_payloads_that_are_seen_are_events_and_masked_ones_are_not() -> None:
    execution = make_execution("completed", parameters={"a": 1})
    path = f"/executions/{execution.pk}"
    principals.caller("masked", given("viewer")).get(path)
    assert "payloads.read" not in {event.permission for event in events()}
    principals.caller("seeing", given("viewer"), given("payloads.read")).get(path)
    assert (last().permission, last().object_id) == ("payloads.read", str(execution.pk))


@pytest.mark.django_db
def test_command_is_an_event_of_its_user_with_what_it_acts_on() -> None:
    worker = make_worker("w1")
    commands.printed("workers", "cordon", worker.name, "--reason", "new disk")
    event = last()
    assert (event.actor_kind, event.permission) == ("command", "workers.order")
    assert event.actor.startswith("cli:")
    assert (event.object_kind, event.object_id) == ("workers", "w1")
    assert "new disk" not in str(chain.content_of(event)), "options may hold secrets"
    number = len(events())
    commands.printed("workers", "list")
    assert len(events()) == number


@pytest.mark.django_db
def test_refused_command_is_an_event(settings: Any) -> None:
    principals.service("helpdesk", given("viewer"))
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:helpdesk")
    worker = make_worker("w1")
    commands.refused("workers", "cordon", worker.name, "--reason", "x")
    assert (last().permission, last().decision) == ("workers.order", "denied")
    assert last().actor.endswith("as service:helpdesk")


@pytest.mark.django_db
def test_command_that_fails_is_an_event_that_says_so() -> None:
    commands.refused("workers", "cordon", "nobody", "--reason", "x")
    assert last().reason.startswith("ended by ")


@pytest.mark.django_db
def test_grant_is_one_event_over_the_api_and_at_the_terminal() -> None:
    caller = principals.caller("boss", given("admin"))
    row = principals.service("ci")
    number = len(events())
    body = {"gives": "viewer", "scope": {"packs": ["billing-*"]}}
    assert caller.post(f"/identities/{row.pk}/grants", body).status_code == 201
    (event,) = events()[number:]
    assert (event.permission, event.object_id) == ("grants.give", "service:ci")
    assert (event.actor, event.reason) == ("boss", "viewer in pack billing-*")
    commands.printed("access", "disable", "ci")
    assert (last().permission, last().actor_kind) == ("identities.disable", "command")
    assert len(events()) == number + 2


# --- people --------------------------------------------------------------------------------------


@pytest.fixture
def browser() -> Client:
    get_user_model().objects.create_superuser("ada", password="a long sentence")
    return Client()


@pytest.mark.django_db
def test_logins_are_events_also_those_that_fail(browser: Client) -> None:
    page = "/admin/login/"
    browser.post(page, {"username": "ada", "password": "swordfish"})
    assert (last().permission, last().decision, last().actor) == (
        *("session.login", "denied", "stranger"),
    )
    assert (last().object_id, last().address) == ("ada", "127.0.0.1")
    browser.post(page, {"username": "ada", "password": "a long sentence"})
    assert (last().decision, last().actor, last().actor_kind) == ("allowed", "user:ada", "user")
    browser.post("/admin/logout/")
    assert last().permission == "session.logout"
    everything = "".join(str(chain.content_of(event)) for event in events())
    assert "swordfish" not in everything
    assert "a long sentence" not in everything


@pytest.mark.django_db
def test_change_in_the_admin_is_an_event_of_its_user(browser: Client) -> None:
    action = make_action("core.echo")
    browser.force_login(get_user_model().objects.get())
    url = reverse("admin:orchestrator_action_disable", args=[action.pk])
    browser.post(url, {"_form_submitted": "True"})
    (found,) = [event for event in events() if event.permission == "admin.action"]
    assert (found.actor, found.reason) == ("user:ada", "core.echo: Disabled.")


@pytest.mark.django_db
def test_accounts_are_events_whoever_makes_them() -> None:
    user = get_user_model().objects.create_user("bob")
    assert (last().permission, last().object_id) == ("access.manage", "bob")
    assert last().actor_kind == "command"
    user.is_superuser = True
    user.save()
    assert last().reason == "changed; is_superuser, is_active"
    number = len(events())
    user.save(update_fields=["last_login"])
    assert len(events()) == number


@pytest.mark.django_db
def test_token_is_an_event_when_it_is_made_rotated_and_revoked() -> None:
    owner = principals.service("ci", given("operator"))
    by: Any = principals.ROOT
    token, text = tokens.create(name="t", owner=owner, by=by, now=NOW, only=[given("viewer")])
    assert (last().permission, last().object_id) == ("tokens.create", "t")
    assert last().reason == "of service:ci: viewer"
    _, another = tokens.rotate(token, by=by, now=NOW)
    assert last().permission == "tokens.rotate"
    tokens.revoke(token, by=by, now=NOW)
    assert last().permission == "tokens.revoke"
    number = len(events())
    tokens.revoke(token, by=by, now=NOW)
    assert len(events()) == number, "it was revoked already"
    everything = "".join(str(chain.content_of(event)) for event in events())
    assert text[12:] not in everything
    assert another[12:] not in everything


@pytest.mark.django_db
def test_admin_shows_events_and_changes_none(browser: Client) -> None:
    event = sealed(1)[0]
    browser.force_login(get_user_model().objects.get())
    listing = browser.get("/admin/access/auditevent/")
    assert b"executions.cancel" in listing.content
    page = browser.get(f"/admin/access/auditevent/{event.pk}/change/")
    assert str(chain.head().hash).encode() in page.content
    for path in ("add/", f"{event.pk}/delete/"):
        assert browser.get(f"/admin/access/auditevent/{path}").status_code == 403


def test_head_is_shown_as_it_is_read() -> None:
    assert str(Head(3, "abc")) == "3:abc"
