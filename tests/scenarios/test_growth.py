"""An app that nothing else names joins by `INSTALLED_APPS`, on either backend."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.scenarios.installation import Installation

pytestmark = pytest.mark.slow

PACK = "tests/errands/pack"
FORGOTTEN = """
from datetime import timedelta
from orchestrator.core import clock
from tests.errands.models import Errand, ErrandKind
now = clock.now()
kind = ErrandKind.objects.get(name="greet")
print(Errand.objects.create(kind=kind, state="under_way", created_at=now - timedelta(hours=1)).pk)
"""


@pytest.fixture
def muster(install: Callable[..., Installation]) -> Installation:
    """With errands: by a settings module and their rights, and nothing else."""
    muster = install()
    muster.environment["DJANGO_SETTINGS_MODULE"] = "tests.errands.settings"
    muster.command("migrate", "--verbosity", "0")
    muster.renew_rights()
    muster.command("pack", "install", PACK)
    return muster


@pytest.fixture
def url(muster: Installation) -> str:
    muster.start_executor()
    muster.start_worker("w1")
    muster.start_beat()
    url = muster.serve()
    muster.ready()
    return url


@pytest.fixture
def api(muster: Installation, url: str) -> Iterator[httpx.Client]:
    token = muster.token("ci")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as client:
        yield client


def test_app_works_by_its_name_in_the_settings(
    muster: Installation, url: str, api: httpx.Client
) -> None:
    errand = api.post("/errands", json={"name": "greet"}).json()
    done = muster.wait_for(lambda: _done(api, errand["id"]), "the errand is not done")
    run = f"/executions/{done['execution_id']}"
    assert api.get(run).json()["parameters"] == {"errand": errand["id"]}
    assert api.post("/errands", json={"name": "nothing"}).status_code == 404

    # the executor finds what no message told of
    typed = muster.command("errand", "ask", "greet").strip()
    muster.wait_for(lambda: _done(api, typed), "the errand without a hint is not done")
    assert muster.command("errand", "list").count(" done") == 2

    # maintenance, by beat, and an investigation of a kind that the core has never heard of
    forgotten = muster.command("shell", "--no-imports", "--command", FORGOTTEN).strip()
    muster.wait_for(
        lambda: api.get(f"/errands/{forgotten}").json()["state"] == "dropped", "it is not dropped"
    )
    (entry,) = api.get("/dlq", params={"subject_id": forgotten}).json()["items"]
    assert (entry["subject_kind"], entry["subject_name"]) == ("errand", "greet")
    listed = json.loads(muster.command("dlq", "list", "--errand", forgotten, "--json"))
    assert [each["dlq_entry_uuid"] for each in listed["items"]] == [entry["dlq_entry_uuid"]]

    metrics = api.get(f"{url}/metrics").text
    assert 'errands_open{state="asked"} 0.0' in metrics
    with _staff(muster, url) as staff:
        assert "Errands" in staff.get("/admin/").text
        assert "greet" in staff.get("/admin/errands/errand/").text
        page = staff.get(f"/admin/errands/errand/{typed}/change/")
        assert page.status_code == 200
        page = staff.get(f"/admin/orchestrator/execution/{done['execution_id']}/change/")
        assert f"errand {errand['id']}" in page.text
        assert "errand" in staff.get("/admin/orchestrator/dlqentry/").text
    assert "errands.queue" in muster.command("topology", "show")


def _done(api: httpx.Client, id: str) -> Any:
    errand = api.get(f"/errands/{id}").json()
    return errand if errand["state"] == "done" else None


@contextlib.contextmanager
def _staff(muster: Installation, url: str) -> Iterator[httpx.Client]:
    """Somebody who is logged in to the admin."""
    muster.environment |= {"DJANGO_SUPERUSER_PASSWORD": "walk the dog"}
    muster.command("createsuperuser", "--noinput", "--username", "ada", "--email", "")
    with httpx.Client(base_url=url, follow_redirects=True, timeout=60) as staff:
        staff.get("/admin/login/")
        form = {
            "username": "ada",
            "password": "walk the dog",
            "csrfmiddlewaretoken": staff.cookies["csrftoken"],
            "next": "/admin/",
        }
        assert staff.post("/admin/login/", data=form).status_code == 200
        yield staff
