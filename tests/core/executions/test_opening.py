"""Keys of executions: refused at the request, opened at the claim, stored nowhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from orchestrator.core import executions, keyholder
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.keyholder import Opened, Wanted
from orchestrator.core.models import Execution
from tests.factories import NOW, make_action, make_execution

pytestmark = pytest.mark.django_db

STRIPE = {"$key": "billing/stripe"}
SCHEMA = {
    "type": "object",
    "properties": {
        "token": {"type": "string", "secret": True, "pattern": "^sk_", "maxLength": 20},
        "header": {"type": "string", "secret": True},
        "note": {"type": "string"},
        "pins": {"type": "array", "items": {"secret": True}},
    },
    "additionalProperties": False,
}


class Holder:
    """Holds `billing/stripe`, and notes what it is asked."""

    def __init__(self, value: str = "sk_live_12345") -> None:
        self.value = value
        self.asked: list[Wanted] = []
        self.opened: list[Wanted] = []

    def refusals(self, wanted: Collection[Wanted]) -> Mapping[Wanted, str]:
        self.asked += wanted
        return {each: "no such key" for each in wanted if each.reference != "billing/stripe"}

    def open(self, wanted: Collection[Wanted]) -> Mapping[Wanted, Opened]:
        self.opened += wanted
        return {
            each: Opened(self.value)
            if each.reference == "billing/stripe"
            else Opened(refusal="It is gone.")
            for each in wanted
        }


@pytest.fixture
def holder() -> Iterator[Holder]:
    holder = Holder()
    before = keyholder.hold(lambda: holder)
    yield holder
    keyholder.hold(before)


@pytest.fixture
def pay() -> Any:
    return make_action("billing.pay", parameters_schema=SCHEMA)


def refused(parameters: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(RequestRefused) as error:
        request(parameters)
    assert not Execution.objects.exists()
    return [(each.pointer, each.message) for each in error.value.refusals]


def request(parameters: dict[str, Any]) -> Execution:
    new = NewExecution(action_ref="billing.pay", parameters=parameters)
    return executions.request(new, requested_by="ada", now=NOW)


def opened(parameters: dict[str, Any], **values: Any) -> executions.Contents:
    execution = make_execution("running", parameters=parameters, key_owner=7, **values)
    return executions.opened([execution])[execution.pk]


def test_reference_is_accepted_and_stored_as_it_is(holder: Holder, pay: Any) -> None:
    execution = request({"token": STRIPE, "note": "hello"})
    execution.refresh_from_db()
    assert execution.parameters == {"token": STRIPE, "note": "hello"}
    assert holder.asked == [Wanted("billing/stripe", "billing.pay", 0)]
    assert holder.opened == []


def test_without_a_reference_nobody_is_asked(holder: Holder, pay: Any) -> None:
    request({"token": "sk_1"})
    assert holder.asked == []


def test_unknown_key_is_refused_with_its_place(holder: Holder, pay: Any) -> None:
    assert refused({"token": {"$key": "billing/other"}}) == [("/parameters/token", "no such key")]


def test_where_nobody_holds_keys_a_reference_is_refused(pay: Any) -> None:
    before = keyholder.hold(keyholder.Nobody)
    try:
        ((place, message),) = refused({"token": STRIPE})
    finally:
        keyholder.hold(before)
    assert (place, message) == ("/parameters/token", "this installation has no keys")


def test_key_may_stand_only_where_a_secret_is_expected(holder: Holder, pay: Any) -> None:
    ((place, message),) = refused({"note": STRIPE})
    assert place == "/parameters/note"
    assert "`secret: true`" in message


@pytest.mark.parametrize("wrong", [{"$key": "x"}, {"$key": "a/b", "c": 1}, {"$text": ["a"]}])
def test_malformed_reference_is_refused(holder: Holder, pay: Any, wrong: Any) -> None:
    ((place, message),) = refused({"token": wrong})
    assert place == "/parameters/token"
    assert message.startswith("expected {")
    assert holder.asked == []


def test_rest_of_the_parameters_is_checked_as_ever(holder: Holder, pay: Any) -> None:
    assert [place for place, _ in refused({"token": STRIPE, "note": 1})] == ["/parameters/note"]
    assert refused({"pins": [STRIPE], "token": 3})[0][0] == "/parameters/token"


def test_claimed_execution_gets_the_value_and_its_row_does_not(holder: Holder, pay: Any) -> None:
    parameters = {"token": STRIPE, "header": {"$text": ["Bearer ", STRIPE]}, "note": "hello"}
    contents = opened(parameters, action=pay)
    assert contents.parameters == {
        "token": "sk_live_12345",
        "header": "Bearer sk_live_12345",
        "note": "hello",
    }
    assert contents.secrets == ("Bearer sk_live_12345", "sk_live_12345")
    assert contents.refusal == ""
    assert Execution.objects.get().parameters == parameters
    assert holder.opened == [Wanted("billing/stripe", "billing.pay", 7)]
    assert "sk_live" not in repr(contents)


def test_value_that_does_not_fit_is_refused_without_being_quoted(holder: Holder, pay: Any) -> None:
    holder.value = "hunter22-hunter22"
    contents = opened({"token": STRIPE}, action=pay)
    assert contents.parameters == {}
    assert contents.refusal.startswith("With its keys opened its parameters do not fit: /token: ")
    assert "hunter22" not in contents.refusal


def test_refusal_of_the_holder_ends_it(holder: Holder, pay: Any) -> None:
    contents = opened({"token": {"$key": "billing/other"}, "header": STRIPE}, action=pay)
    assert contents == executions.Contents({}, refusal="It is gone.")


def test_plain_values_below_a_secret_schema_are_masked_too(holder: Holder, pay: Any) -> None:
    parameters = {
        "token": "sk_plain",
        "pins": ["1234", 123456, {"deep": "deeper"}],
        "note": "open one",
    }
    contents = opened(parameters, action=pay)
    assert contents.parameters == parameters
    assert contents.secrets == ("123456", "deeper", "sk_plain")
    assert holder.opened == []


def test_many_claims_ask_once(holder: Holder, pay: Any, django_assert_num_queries: Any) -> None:
    rows = [make_execution("running", action=pay, parameters={"token": STRIPE}) for _ in range(3)]
    plain = [make_execution("running", action=pay, parameters={"note": "x"}) for _ in range(3)]
    with django_assert_num_queries(1):  # who requested those with a key
        assert len(executions.opened(rows + plain)) == 6
    with django_assert_num_queries(0):
        executions.opened(plain)


def test_database_that_is_away_refuses_only_what_refers_to_a_key(holder: Holder, pay: Any) -> None:
    with_key = make_execution("running", action=pay, parameters={"token": STRIPE})
    without = make_execution("running", action=pay, parameters={"note": "x"})
    contents = executions.opened([with_key, without], unread="Nobody answered.")
    assert contents[with_key.pk].refusal == "Nobody answered."
    assert contents[without.pk].parameters == {"note": "x"}
    assert holder.opened == []
