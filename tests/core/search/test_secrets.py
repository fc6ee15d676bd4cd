"""What is hidden is found by no search, and no cursor tells whether a guess is right."""

from __future__ import annotations

from uuid import UUID

import pytest

from orchestrator.core import contents, cursors, search
from orchestrator.core.contents import Secrets
from orchestrator.core.models import Action, Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.search import finding
from tests.core.search.conftest import SCHEMA
from tests.factories import NOW, make_action, make_execution
from tests.principals import ROOT, given, principal

pytestmark = pytest.mark.django_db

URL = "postgres://ada:hunter22@db/shop refused"


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def pages(text: str, by: object = ROOT) -> list[tuple[list[Execution], search.Stop | None]]:
    asked = search.Asked(by, NOW)  # type: ignore[arg-type]
    wanted, below, found = search.read(text, asked), None, []
    while True:
        rows = Execution.objects.visible_to(asked.principal)
        page = search.find(wanted, rows, limit=3, below=below)
        found.append((page.rows, page.looked_at.stopped_by if page.looked_at else None))
        if page.next_cursor is None:
            return found
        below = cursors.read(page.next_cursor, UUID)


def rows(text: str, by: object = ROOT) -> list[Execution]:
    return [row for page, _ in pages(text, by) for row in page]


def test_marked_parameter_never_matches_and_its_opposite_always_does() -> None:
    action = make_action(parameters_schema=SCHEMA)
    made = [make_execution(action=action, parameters={"pin": 1234, "order": n}) for n in range(9)]
    assert pages("param.pin:1234") == pages("param.pin:4321") == [([], search.Stop.END)]
    assert pages("-param.pin:1234") == pages("-param.pin:4321")
    assert rows("-param.pin:1234") == made[::-1]
    assert rows("param.order:4") == [made[4]]


def test_parameter_that_the_schema_of_then_marks_is_compared_as_it_is_shown() -> None:
    action = make_action(parameters_schema=SCHEMA)
    execution = make_execution(action=action, parameters={"pin": 1234})
    known = Action.objects.known({(action.pk, None)})  # as the action was at its acceptance
    Action.objects.update(parameters_schema={"type": "object"})
    assert known[action.pk, None].parameters_schema == SCHEMA
    assert rows("param.pin:1234") == []
    forget_actions()
    assert rows("param.pin:1234") == [execution]


def test_part_of_a_secret_in_a_message_is_not_found_letter_by_letter() -> None:
    for _ in range(9):
        make_execution("failed", result={"message": URL})
        make_execution("failed", result={"message": {"password": "hunter22", "host": "db"}})
    for guess in ("hunter22", "hunter", "ada:h", "h", "://ada"):
        if guess != "h":
            assert rows(f'message:"{guess}"') == []
        right, wrong = pages(f'message:"ada:{guess}"'), pages(f'message:"ada:x{guess}"')
        assert right == wrong == [([], search.Stop.END)]
    assert len(rows("message:refused")) == 9


def test_value_of_a_name_in_a_message_is_not_found_letter_by_letter() -> None:
    for _ in range(9):
        make_execution("failed", result={"message": "login failed: Password=hunter22"})
    for guess in ("hunter22", "hunter", "=h", "Password=h"):
        assert pages(f'message:"{guess}"') == pages('message:"=x"') == [([], search.Stop.END)]
    assert len(rows('message:"password=***"')) == 9


def test_value_that_an_app_knows_to_be_secret_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = make_execution(
        "failed", parameters={"order": "4711-4711"}, result={"message": "no 4711-4711 here"}
    )
    assert rows("param.order:4711-4711") == rows("message:4711") == [execution]
    secrets = {execution.pk: Secrets(values=("4711-4711",))}
    monkeypatch.setattr(contents, "secrets_of", lambda executions: secrets)
    assert rows("param.order:4711-4711") == rows("message:4711") == []
    assert rows("message:here") == [execution]


def test_who_may_not_read_payloads_finds_nothing_by_them() -> None:
    execution = make_execution("failed", parameters={"order": 7}, result={"message": "no route"})
    for observer in (
        principal(given("executions.read")),
        principal(given("executions.read"), given("payloads.read", packs=["shop"])),
    ):
        assert rows("param.order:7", observer) == rows('message:"no route"', observer) == []
        assert rows("status:failed", observer) == [execution]
    both = principal(given("executions.read"), given("payloads.read", packs=["core"]))
    assert rows("param.order:7", both) == rows('message:"no route"', both) == [execution]


def test_rows_out_of_reach_are_not_found_by_any_term() -> None:
    hidden = make_execution("failed", correlation_id="c1", action=make_action("core.echo"))
    seen = make_execution("failed", correlation_id="c1", action=make_action("shop.charge"))
    shop = principal(given("operator", packs=["shop"]))
    for text in ("c1", "correlation:c1", "status:failed", "", "-status:open", "worker:w1"):
        assert rows(text, shop) == [seen]
    assert rows(str(hidden.pk), shop) == rows(f"id:…{hidden.pk.hex[-6:]}", shop) == []


def test_many_rows_are_compared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "CHUNK", 2)
    made = [make_execution(parameters={"order": n % 2}) for n in range(9)]
    assert rows("param.order:1") == made[::-1][1::2]
