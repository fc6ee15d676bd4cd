"""A valid pack is installed whole, a broken one not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core import packs
from orchestrator.core.models import Action, Pack
from tests.core.packs.folder import CORE
from tests.factories import NOW

LATER = NOW + timedelta(hours=1)


@pytest.mark.django_db
class TestInstall:
    def test_a_new_pack_is_created_as_it_is_defined(self):
        report = packs.install(packs.load(CORE), now=NOW)
        assert len(report.created) == Action.objects.count() == 9
        shell = Action.objects.get(ref="core.shell")
        assert (shell.runtime, shell.entry_point, shell.updated_at) == ("shell", ["{argv}"], NOW)
        assert shell.pack.path == str(CORE)

    def test_installing_it_again_changes_nothing(self):
        packs.install(packs.load(CORE), now=NOW)
        report = packs.install(packs.load(CORE), now=LATER)
        assert len(report.unchanged) == 9
        assert not report.created + report.updated + report.disabled
        assert set(Action.objects.values_list("updated_at", flat=True)) == {NOW}
        assert Pack.objects.get().installed_at == NOW

    def test_only_what_changed_is_updated(self, folder):
        folder.action("a")
        folder.action("b")
        packs.install(folder.load(), now=NOW)
        folder.action("b", timeout_seconds=5)
        report = packs.install(folder.load(), now=LATER)
        assert (report.updated, report.unchanged) == (("net.b",), ("net.a",))
        changed = Action.objects.get(ref="net.b")
        assert (changed.timeout_seconds, changed.updated_at) == (5, LATER)

    def test_an_action_that_left_is_disabled_and_one_that_returns_enabled(self, folder):
        folder.action("a")
        folder.action("b")
        packs.install(folder.load(), now=NOW)
        (folder.path / "actions/b.yaml").unlink()
        assert packs.install(folder.load(), now=LATER).disabled == ("net.b",)
        assert not Action.objects.get(ref="net.b").enabled
        assert packs.install(folder.load(), now=LATER).disabled == ()
        folder.action("b")
        assert packs.install(folder.load(), now=LATER).updated == ("net.b",)
        assert Action.objects.get(ref="net.b").enabled

    def test_a_new_version_is_recorded(self, folder):
        packs.install(folder.load(), now=NOW)
        folder.write("pack.yaml", 'name: net\nversion: "2.0"\n')
        packs.install(folder.load(), now=LATER)
        pack = Pack.objects.get()
        assert (pack.version, pack.installed_at) == ("2.0", LATER)

    def test_an_action_of_another_pack_is_not_taken_over(self, folder):
        other = Pack.objects.create(name="other", version="1", path="/", installed_at=NOW)
        Action.objects.create(
            pack=other, ref="net.ping", runtime="shell", entry_point=["x"], updated_at=NOW
        )
        folder.action("ping")
        with pytest.raises(packs.RefTaken, match=r"net\.ping belongs to the pack other 1"):
            packs.install(folder.load(), now=NOW)
        assert Pack.objects.count() == 1
