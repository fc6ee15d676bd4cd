"""Packs over the API: an archive installs a release, and a pack that is in use is not removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.models import Action, Pack
from orchestrator.core.packs import environments
from tests.core.api.client import Caller
from tests.core.packs.releasing import install, shop
from tests.core.packs.test_archives import PACK, tar
from tests.factories import make_execution

pytestmark = pytest.mark.django_db

GZIP = "application/gzip"
ACTION = b'name: ping\nruntime: shell\nentry_point: [ping, "-c1"]\n'
NET = (PACK, ("net/actions/ping.yaml", ACTION))


def send(caller: Caller, archive: bytes, content_type: str = GZIP, query: str = "") -> Any:
    return caller.send(f"/packs{query}", archive, content_type=content_type)


class TestInstall:
    def test_an_archive_becomes_a_release(self, caller):
        answer = send(caller, tar(*NET))
        assert answer.status_code == 201
        installed = answer.json()
        assert (installed["pack"], installed["created"]) == ("net", ["net.ping"])
        assert Pack.objects.get(release__digest=installed["release"]).name == "net"
        assert caller.get("/packs/net").json()["release"] == installed["release"]
        (release,) = caller.get("/packs/net/releases").json()["items"]
        assert (release["state"], release["files"]) == ("installed", 2)
        assert release["installed_by"]

    def test_every_problem_is_told_and_nothing_is_changed(self, caller):
        broken = ACTION + b"timeout_seconds: 0\nqueue_ttl_ms: -1\n"
        answer = send(caller, tar(PACK, ("net/actions/ping.yaml", broken)))
        assert answer.status_code == 422
        places = [error["message"] for error in answer.json()["errors"]]
        assert [place.split(": ")[0] for place in places] == [
            "archive/actions/ping.yaml:4:18",
            "archive/actions/ping.yaml:5:15",
        ]
        assert not Pack.objects.exists()

    @pytest.mark.parametrize(
        ("archive", "content_type", "status"),
        [
            (tar(*NET), "application/json", 415),
            (b"junk", GZIP, 422),
            (tar(PACK, ("../evil", b"")), GZIP, 422),
        ],
    )
    def test_what_is_no_archive_is_refused(self, caller, archive, content_type, status):
        assert send(caller, archive, content_type).status_code == status

    def test_one_that_is_too_large_is_refused(self, caller, settings):
        settings.MUSTER = replace(settings.MUSTER, pack_limit_mb=0.0001)
        assert send(caller, tar(*NET)).status_code == 413

    def test_it_runs_no_code_of_the_pack(self, caller):
        code = b"import muster_client\n\n@muster_client.action\ndef a(): ...\n"
        answer = send(caller, tar(PACK, ("net/work.py", code)))
        assert answer.status_code == 422
        assert "MUSTER_ACTION_USER" in answer.content.decode()

    def test_it_installs_no_packages(self, caller, settings, monkeypatch):
        settings.MUSTER = replace(settings.MUSTER, action_user="nobody")
        monkeypatch.setattr(environments, "python_of", None)
        code = b"import muster_client\n\n@muster_client.action\ndef a(): ...\n"
        archive = tar(PACK, ("net/work.py", code), ("net/requirements.txt", b"requests\n"))
        answer = send(caller, archive)
        assert answer.status_code == 422
        assert "manage.py pack install" in answer.content.decode()


class TestRemove:
    @pytest.fixture(autouse=True)
    def _installed(self, folder):
        shop(folder, 1)
        install(folder.path)

    def test_a_pack_that_nothing_needs_is_removed(self, caller):
        answer = caller.delete("/packs/net")
        assert (answer.status_code, answer.json()["is_removed"]) == (200, True)
        assert caller.get("/packs/net").status_code == 404
        assert caller.get("/packs").json()["items"] == []

    def test_its_releases_are_still_listed_page_by_page(self, caller, folder):
        shop(folder, 2)
        install(folder.path)
        caller.delete("/packs/net")
        first = caller.get("/packs/net/releases", limit=1).json()
        assert first["next"] == f"/api/v1/packs/net/releases?limit=1&cursor={first['next_cursor']}"
        second = caller.get("/packs/net/releases", limit=1, cursor=first["next_cursor"]).json()
        versions = [page["items"][0]["version"] for page in (first, second)]
        assert (versions, second["next"]) == (["2.0", "1.0"], None)
        assert caller.get("/packs/nut/releases").status_code == 404

    def test_one_that_is_in_use_is_not(self, caller):
        execution = make_execution(action=Action.objects.get())
        answer = caller.delete("/packs/net")
        assert answer.status_code == 409
        assert answer.json()["type"] == "urn:muster:problem:pack-in-use"
        assert str(execution.pk) in answer.json()["detail"]

    def test_a_drain_is_asked_for_until_it_is_done(self, caller):
        execution = make_execution(action=Action.objects.get())
        answer = caller.delete("/packs/net?drain=true")
        assert answer.status_code == 202
        assert answer.json()["waits_for"] == [f"execution {execution.pk}"]
        assert caller.get("/packs/net").json()["draining_since"]
        caller.post(f"/executions/{execution.pk}/cancel", {})
        assert caller.delete("/packs/net?drain=true").status_code == 200

    def test_what_is_open_is_cancelled_if_that_is_asked(self, caller):
        execution = make_execution(action=Action.objects.get())
        assert caller.delete("/packs/net?cancel=true").status_code == 200
        execution.refresh_from_db()
        assert execution.status == "cancelled"
