"""`manage.py pack`."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import pytest
from django.core.management import call_command

from orchestrator.core.models import Action, Pack
from tests import commands
from tests.core.packs.folder import CORE

run, document, _ = commands.of("pack")
items = partial(commands.items, "pack")


@pytest.mark.django_db
class TestCommand:
    def test_validate_shows_the_actions_and_installs_nothing(self):
        assert "core.sha256" in run("validate", str(CORE))
        assert not Pack.objects.exists()

    def test_validate_says_which_isolation_this_host_does_not_give(self, folder, settings):
        folder.write("actions.py", "def f(): ...\n")
        for level in ("trusted", "process", "user"):
            folder.action(level, runtime="python", entry_point="net.actions:f", isolation=level)
        printed = run("validate", str(folder.path))
        assert "isolation trusted: its actions run at process, the least that this" in printed
        assert "isolation user: not on a worker that is started like this command: " in printed
        assert "isolation process" not in printed
        settings.MUSTER = replace(settings.MUSTER, least_isolation="trusted")
        assert "isolation trusted" not in run("validate", str(folder.path))

    def test_what_a_pack_says_is_printed_and_not_obeyed(self, folder):
        folder.action(description="\x1b[2J[red]plain")
        for line in (
            run("validate", str(folder.path)),
            run("install", str(folder.path)),
            run("list"),
        ):
            assert "\x1b" not in line
        assert "[red]plain" in run("list")

    def test_install_counts_what_it_did(self):
        assert "8" in run("install", str(CORE))
        assert Action.objects.count() == 9

    def test_a_broken_pack_exits_with_1_and_prints_every_problem(self, folder):
        folder.action(timeout_seconds=0, idempotent=3)
        stderr = io.StringIO()
        with pytest.raises(SystemExit) as exit_:
            call_command("pack", "install", str(folder.path), stderr=stderr)
        assert exit_.value.code == 1
        first, second, summary = stderr.getvalue().splitlines()
        assert first.startswith(f"{folder.path}/actions/ping.yaml:4:")
        assert "timeout_seconds: expected a number above 0, at most 604,800 (seven days)" in second
        assert summary == "2 problems; nothing was changed."
        assert not Pack.objects.exists()

    def test_list_says_what_is_installed_and_what_is_disabled(self):
        assert "No pack is installed" in run("list")
        run("install", str(CORE))
        Action.objects.filter(ref="core.fail").update(enabled=False)
        assert "core.fail (disabled)" in run("list")

    def test_list_as_json_is_for_scripts(self):
        run("install", str(CORE))
        (pack,) = items("list")
        assert (pack["name"], pack["version"]) == ("core", "1.0")
        assert pack["actions"][1] == {
            "ref": "core.echo",
            "runtime": "python",
            "isolation": "process",
            "description": "Returns its parameters.",
            "enabled": True,
            "dangerous": False,
        }
