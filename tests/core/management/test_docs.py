"""The pages of docs/ that are written from the code say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from orchestrator.core import topology
from orchestrator.core.management import documents
from orchestrator.core.management.pages import reasons, state_machine
from orchestrator.core.management.pages import settings as settings_page
from orchestrator.core.management.pages import topology as topology_page
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TRANSITIONS, WHO_MOVES_IT_ON
from orchestrator.notifications import hearing
from orchestrator.queues.gates import doors

DOCS = Path(settings.BASE_DIR) / "docs"


@pytest.mark.parametrize("name", documents.pages())
def test_page_is_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == documents.pages()[name](), "run: manage.py docs generate"


def test_every_setting_says_what_it_is_for() -> None:
    told = settings_page.attribute_docstrings(type(settings.MUSTER))
    assert set(told) == {field.name for field in fields(settings.MUSTER)}
    page = settings_page.page()
    assert all(f"`MUSTER_{name.upper()}`" in page and text in page for name, text in told.items())


def test_every_status_says_who_moves_it_on() -> None:
    page = state_machine.page()
    for status, who in WHO_MOVES_IT_ON.items():
        assert f"| `{status}` | {who} |" in page
    assert all(f"`{event}`" in page for event in TRANSITIONS)


def test_every_queue_and_reason_is_told() -> None:
    page = topology_page.page()
    assert all(f"`{spec.name}`" in page for spec in topology.shared_queues())
    assert "`worker.<id>.executions`" in page
    assert "`muster.told.<name>.<random>`" in page
    assert "`muster.notifications.queue.<name>.<random>`" in page
    assert all(f"| `{reason}` | {reason.text} |" in reasons.page() for reason in Reason)


def test_flow_has_who_fills_each_exchange() -> None:
    page = topology_page.page()
    for number, name in enumerate(topology.exchange_purposes()):
        if name != topology.dead_letter_exchange():  # the broker fills it
            assert re.search(rf"^    api\(\[.+?\]\) --> x{number}$", page, re.MULTILINE), name


def test_queues_of_listeners_are_told_as_they_are_declared() -> None:
    told, notifications = topology_page.queues_of_listeners()
    assert told.arguments == {"x-max-length": doors.MOST_MESSAGES_HEARD}
    assert notifications.arguments == {"x-max-length": hearing.MOST_MESSAGES}


def test_page_that_is_out_of_date_is_named_and_written(tmp_path: Path) -> None:
    assert documents.write(tmp_path) == list(documents.pages())
    assert documents.outdated(tmp_path) == []
    (tmp_path / "topology.md").write_text("old")
    assert documents.outdated(tmp_path) == ["topology.md"]


def test_check_names_what_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "page", lambda: "new")
    with pytest.raises(CommandError, match=r"docs/reference/reasons\.md"):
        call_command("docs", "generate", "--check")
