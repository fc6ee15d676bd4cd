"""`manage.py keys`: the value comes from stdin or a file, and nothing prints it."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.access.models import Key
from orchestrator.core import keyholder
from orchestrator.core.keyholder import Wanted
from tests import commands
from tests.principals import service

pytestmark = pytest.mark.django_db

run, document, refused = commands.of("keys")
items = partial(commands.items, "keys")

VALUE = "sk_live_0123456789"


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    give(f"{VALUE}\n")
    return give


def opened(reference: str = "billing/stripe") -> str:
    wanted = Wanted(reference, "billing.charge", 0)
    return keyholder.holder().open([wanted])[wanted].value


def test_value_comes_from_stdin_without_its_line_end(billing: None, stdin: Any) -> None:
    said = run("create", "billing/stripe")
    assert opened() == VALUE
    assert said.strip() == 'billing/stripe is created. In parameters: {"$key": "billing/stripe"}'
    stdin("two\nlines, and a blank line\n\n")
    run("rotate", "billing/stripe")
    assert opened() == "two\nlines, and a blank line\n"


def test_value_comes_from_a_file(billing: None, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_text(f"{VALUE}\r\n")
    run("create", "billing/stripe", "--from-file", str(file))
    assert opened() == VALUE
    assert refused("create", "billing/x", "--from-file", "/no/such") == (
        "/no/such cannot be read: No such file or directory"
    )


def test_value_is_asked_for_twice_at_a_terminal(
    billing: None, stdin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    answers = iter([VALUE, VALUE + "x", VALUE, VALUE])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert "differ: nothing was changed" in refused("create", "billing/stripe")
    assert not Key.objects.exists()
    run("create", "billing/stripe")
    assert opened() == VALUE


def test_value_is_no_argument() -> None:
    for option in ("--value", "--secret"):
        said = subprocess.run(
            [sys.executable, "manage.py", "keys", "create", "billing/stripe", option, VALUE],
            capture_output=True,
            text=True,
        )
        assert said.returncode == 2
        assert "unknown argument" in said.stderr


def test_audit_of_a_key_has_who_changed_it_and_for_what_it_was_opened(
    billing: None, stdin: Any
) -> None:
    run("create", "billing/stripe")
    opened()
    stdin("another value")
    run("rotate", "billing/stripe")
    events = commands.document("audit", "list", "--object-id", "billing/stripe")["items"]
    about = {event["permission"]: event["reason"] for event in events}
    assert about.keys() == {"keys.create", "keys.open", "keys.rotate"}
    assert about["keys.open"].startswith("for billing.charge")


def test_listing_has_everything_but_the_value(billing: None, stdin: Any) -> None:
    assert "There is no key. Create one" in run("list")
    run("create", "billing/stripe", "--description", "of the test account")
    stdin(VALUE)
    run("create", "installation/smtp", "--packs", "mail, bill*")
    stdin(VALUE)
    service("ada")
    run("create", "user/github", "--owner", "service:ada")
    table = run("list")
    for text in ("billing/stripe", "of the test account", "mail, bill*", "service:ada"):
        assert text in table
    assert VALUE not in table
    rows = items("list")
    assert [row["reference"] for row in rows] == [
        "installation/smtp", "billing/stripe", "user/github",
    ]  # fmt: skip
    assert VALUE not in str(rows)
    assert rows[1]["packs"] == ["billing"]


def test_revoked_key_is_listed_only_on_demand(billing: None, stdin: Any) -> None:
    run("create", "billing/stripe")
    assert "its value is gone" in run("revoke", "billing/stripe")
    assert items("list") == []
    (row,) = items("list", "--revoked")
    assert (row["state"], row["ring_id"]) == ("revoked", "")
    assert refused("revoke", "billing/stripe") == "There is no key billing/stripe"


def test_unknown_key_is_refused_before_its_value_is_read(billing: None, stdin: Any) -> None:
    assert refused("rotate", "billing/stripe") == "There is no key billing/stripe"
    assert sys.stdin.read() == f"{VALUE}\n"


def test_key_of_a_user_needs_its_owner_and_no_other_does(billing: None, stdin: Any) -> None:
    service("ada")
    assert "--owner IDENTITY" in refused("create", "user/github")
    assert "--owner IDENTITY" in refused("create", "billing/stripe", "--owner", "service:ada")


def test_ring_is_shown_by_its_ids_and_grows_at_the_top(billing: None, stdin: Any) -> None:
    run("create", "billing/stripe")
    (first,) = items("ring")
    assert (first["seals"], first["keys"]) == (True, 1)
    added, before = items("ring", "--add")
    assert (added["seals"], added["keys"]) == (True, 0)
    assert before["id"] == first["id"]
    assert "opens" in run("ring")
    assert run("reseal").strip() == f"1 key is newly sealed, under {added['id']}."
    assert [row["keys"] for row in items("ring")] == [1, 0]


def test_ring_names_the_keys_that_it_lacks(billing: None, stdin: Any, ring_file: Path) -> None:
    run("create", "billing/stripe")
    lost = Key.objects.get().ring_id
    ring_file.unlink()
    run("ring", "--add")
    assert "is not in the ring" in run("ring")
    assert lost in run("ring")
    assert f"is sealed under the ring's key {lost}" in refused("reseal")
