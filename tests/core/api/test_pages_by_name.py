"""Actions and workers come in pages, by name: none is skipped, none is shown twice."""

from __future__ import annotations

import base64

import pytest

from tests.core.api.client import pointers
from tests.factories import make_action, make_worker

pytestmark = pytest.mark.django_db


def collected(caller, path, field, **query):
    found, pages = [], 0
    while path is not None:
        page = caller.get(path, **query).json()
        found += [item[field] for item in page["items"]]
        path, query, pages = (page["next"] or "").removeprefix("/api/v1") or None, {}, pages + 1
        assert pages < 50
    return found, pages


def test_actions_come_in_pages(caller):
    refs = sorted(f"core.a{number}" for number in range(7))
    for ref in reversed(refs):
        make_action(ref)
    assert collected(caller, "/actions", "ref", limit=3) == (refs, 3)
    assert collected(caller, "/actions", "ref") == (refs, 1)


def test_workers_come_in_pages_whatever_their_names(caller):
    names = {"w1", "w2", "wörker-3", "工人", "W4", "w 5", "w/6?&=%"}
    for name in names:
        make_worker(name)
    found, pages = collected(caller, "/workers", "name", limit=2, retired="true")
    assert set(found) == names
    assert len(found) == len(names)
    assert pages == 4


@pytest.mark.parametrize("path", ["/actions", "/workers"])
@pytest.mark.parametrize("cursor", ["!", "a", base64.urlsafe_b64encode(b"a\0b").decode(), "gICA"])
def test_cursor_that_was_made_up_is_refused(caller, path, cursor):
    refused = caller.get(path, cursor=cursor)
    assert refused.status_code == 422
    assert pointers(refused) == ["?cursor"]


@pytest.mark.parametrize("path", ["/actions", "/workers"])
@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 501}, {"page": 2}])
def test_page_has_its_limits(caller, path, query):
    assert caller.get(path, **query).status_code == 422
