"""What may follow in a search: keys, then values; names out of reach are not offered."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import search
from orchestrator.core.search import completion
from orchestrator.queues.models import WorkQueue
from tests.factories import NOW, make_action, make_worker
from tests.principals import ROOT, given, principal

pytestmark = pytest.mark.django_db


def offered(text: str, by: Any = ROOT, position: int | None = None) -> list[str]:
    """The texts with each suggestion in its place."""
    at = len(text) if position is None else position
    found = search.complete(text, at, search.Asked(by, NOW))
    return [text[: each.start] + each.text + text[each.end :] for each in found]


@pytest.fixture(autouse=True)
def names() -> None:
    make_action("core.echo")
    make_action("core.shell")
    make_action("shop.charge")
    make_worker("w1")
    make_worker("w2", labels={"zone": "b"})
    WorkQueue.objects.create(name="mail", created_at=NOW, updated_at=NOW)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("sta", ["status:"]),
        ("core.echo wa", ["core.echo waited:"]),
        ("-wo", ["-worker:"]),
        ("par", ["param."]),
        ("zzz", []),
        ("status:fa", ["status:failed"]),
        ("status:failed,ca", ["status:failed,canceling", "status:failed,cancelled"]),
        ("status:op", ["status:open"]),
        ("is:", ["is:overdue"]),
        ("reason:worker_l", ["reason:worker_lost"]),
        ("action:core.", ["action:core.echo", "action:core.shell"]),
        ("worker:", ["worker:w1", "worker:w2"]),
        ("queue:", ["queue:default", "queue:mail"]),
        ("ran:", ["ran:>5s"]),
        ("ran:>", []),
        ("by:", []),
        ("nothing:", []),
        ('message:"status:fa', []),
    ],
)
def test_the_word_before_the_end_is_completed(text: str, texts: list[str]) -> None:
    assert offered(text) == texts


def test_a_word_in_the_middle_is_completed_in_its_place() -> None:
    assert offered("status:fa ran:>5s", position=9) == ["status:failed ran:>5s"]


def test_every_key_is_offered_for_nothing_with_what_it_means() -> None:
    found = search.complete("", 0, search.Asked(ROOT, NOW))
    assert len(found) == 16
    assert all(each.about for each in found)


def test_names_out_of_reach_are_not_offered() -> None:
    shop = principal(given("operator", packs=["shop"]))
    assert offered("action:", shop) == ["action:shop.charge"]
    assert offered("worker:", principal(given("operator", labels={"zone": "b"}))) == ["worker:w2"]


def test_few_are_offered_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "MOST", 2)
    assert offered("action:") == ["action:core.echo", "action:core.shell"]
    assert len(offered("reason:")) == 2
