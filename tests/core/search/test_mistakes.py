"""A key or a value that is not known is pointed at, with what was meant; nothing is applied."""

from __future__ import annotations

import pytest

from orchestrator.core import search
from tests.factories import NOW, make_action, make_worker
from tests.principals import ROOT, given, principal

pytestmark = pytest.mark.django_db

ASKED = search.Asked(ROOT, NOW)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("status:faild", "faild", "no status is called 'faild', did you mean 'failed'?"),
        ("status:qqq", "qqq", "no status is called 'qqq': expected one of requested, "),
        ("-ran:>5s status:ok,faild", "faild", "did you mean 'failed'?"),
        ("is:overdu", "overdu", "no condition is called 'overdu', did you mean 'overdue'?"),
        ("reason:worker_lots", "worker_lots", "did you mean 'worker_lost'"),
        ("wroker:w1", "wroker", "no key is called 'wroker', did you mean 'worker'?"),
        ("zzzz:w1", "zzzz", "expected one of status, reason, "),
        ("Status:failed", "Status", "did you mean 'status'?"),
        ("action:core.ecko", "core.ecko", "did you mean 'core.echo'?"),
        ("action:nothing.*", "nothing.*", "no action is called 'nothing.*'"),
        ('action:"core.*"', '"core.*"', "no action is called 'core.*'"),
        ("worker:w11", "w11", "did you mean 'w1'?"),
        ("worker:²", "²", "no worker has the name or id '²'"),
        ("worker:99999999999999999999", "99999999999999999999", "no worker has"),
        ("queue:defualt", "defualt", "did you mean 'default'?"),
        ("queue:mail", "mail", "mail* finds the work of one that was removed"),
        ("attempt:two", "two", "expected a whole number"),
        ("attempt:>99999999999", ">99999999999", "expected a whole number"),
        ("attempt:4..2", "4..2", "expected the smaller value first: 2..4"),
        ("ran:5s", "5s", "expected a comparison: >5s, <5s or 5s.."),
        ("ran:>5", ">5", "expected a duration with its unit"),
        ("ran:>5x", ">5x", "expected a duration with its unit"),
        ("ran:..", "..", "expected a value before or after .."),
        ("ran:>1000000w", ">1000000w", "at most 100 years"),
        ("ran:>1s,>2s", ">2s", "ran takes one value"),
        ("created:1h", "1h", "expected a comparison: <1h for the last 1h"),
        ("created:yesterday", "yesterday", "expected a time in UTC"),
        ("created:2026-02-30", "2026-02-30", "expected a time in UTC"),
        ("created:0001-01-01..", "0001-01-01..", "expected a year from 1970 to 9000"),
        ("created:9999-12-31..", "9999-12-31..", "expected a year from 1970 to 9000"),
        ("created:<9999999d", "<9999999d", "expected at most 100 years"),
        ("created:2026-02-28..2026-02-27", "2026-02-28..2026-02-27", "the smaller value first"),
        ("param:7", "param", "expected the name of a parameter"),
        ("param.a..b:7", "param.a..b", "names with a dot between them"),
        ("param.:x", "param.", "names with a dot between them"),
        ("param.db.password:x", "param.db.password", "the name of a secret"),
        ("status.x:failed", "status.x", "status has no parts, did you mean 'status'?"),
        ("id:xyz", "xyz", "expected an id"),
        ("id:01a", "01a", "expected an id"),
        ("…", "…", "expected an id"),
        ("zz…12", "zz…12", "expected an id"),
    ],
)
def test_a_mistake_is_marked_and_says_what_is_expected(text: str, place: str, message: str) -> None:
    make_action("core.echo")
    make_worker("w1")
    with pytest.raises(search.NotUnderstood) as refused:
        search.read(text, ASKED)
    found = {text[each.start : each.end]: each.message for each in refused.value.mistakes}
    assert message in found[place]


def test_all_mistakes_in_keys_and_values_are_said_at_once() -> None:
    with pytest.raises(search.NotUnderstood) as refused:
        search.read("status:faild,timeot by:ada raan:>5s created:never", ASKED)
    places = [(each.start, each.end) for each in refused.value.mistakes]
    assert places == [(7, 12), (13, 19), (27, 31), (44, 49)]


def test_names_out_of_reach_are_unknown_and_not_suggested() -> None:
    make_action("core.echo")
    make_action("shop.charge")
    shop = search.Asked(principal(given("operator", packs=["shop"])), NOW)
    search.read("action:shop.charge", shop)
    for text in ("action:core.echo", "action:core.ech", "action:core.*"):
        with pytest.raises(search.NotUnderstood) as refused:
            search.read(text, shop)
        assert "did you mean" not in str(refused.value)
