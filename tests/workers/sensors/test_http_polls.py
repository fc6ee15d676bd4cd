"""A poll finds what is new or has changed, once, and reaches only what it may."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orchestrator.automation.sensors.reports import Report
from orchestrator.core.executions.checking import OWN_KEYS
from workers.sensors import http_polls
from workers.sensors.http_polls import HttpPoll
from workers.sensors.lives import Failed


class Feed(ThreadingHTTPServer):
    """A server with a list of items, which says 304 to whoever has it already."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.items: Any = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/feed"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        feed = self.server
        assert isinstance(feed, Feed)
        headers = {name.lower(): value for name, value in self.headers.items()}
        feed.asked.append({"path": self.path, **headers})
        body = json.dumps({"data": {"items": feed.items}}).encode()
        if feed.headers.get("Content-Encoding"):
            body = gzip.compress(body)
        tag = f'"{hash(body)}"'
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{feed.server_port}/feed")
        elif headers.get("if-none-match") == tag:
            self.send_response(304)
            body = b""
        else:
            self.send_response(feed.status)
            for name, value in {"ETag": tag, **feed.headers}.items():
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def feed(settings: Any) -> Iterator[Feed]:
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.0/8,::1/128")
    server = Feed()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def make_poll(*, key: str = "", noted: list[str] | None = None, **parameters: Any) -> HttpPoll:
    """A poll that may have one key, and that notes its lines there."""
    notes: list[str] = [] if noted is None else noted
    return HttpPoll(7, parameters, lambda headers: {"installation/feed": key}, notes.append)


def poll_of(feed: Feed, **parameters: Any) -> HttpPoll:
    known = {"url": feed.url, "items": "/data/items", "item_key": "{{ item.id }}"}
    return make_poll(**{**known, "existing": "report", **parameters})


def look(poll: HttpPoll, cursor: Mapping[str, Any]) -> tuple[list[Report], Mapping[str, Any]]:
    """Look once; all that was found, and the cursor after it."""
    steps = list(poll.look(cursor))
    found = [report for some, _ in steps for report in some]
    return found, steps[-1][1] if steps else cursor


def summary(found: list[Report]) -> list[tuple[Any, str]]:
    return [(report.payload["item"]["id"], report.payload["change"]) for report in found]


def test_new_and_changed_items_are_events_and_the_same_response_is_not_read_again(
    feed: Feed,
) -> None:
    poll = poll_of(feed)
    feed.items = [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}]
    found, cursor = look(poll, {})
    assert summary(found) == [(1, "new"), (2, "new")]
    assert look(poll, cursor) == ([], cursor)
    assert feed.asked[-1]["if-none-match"] == cursor["etag"], "answered by 304"

    feed.items = [{"id": 1, "v": "b"}, {"id": 2, "v": "a"}, {"id": 3, "v": "a"}]
    found, cursor = look(poll, cursor)
    assert summary(found) == [(1, "changed"), (3, "new")]


def test_item_that_comes_twice_is_one_event(feed: Feed) -> None:
    feed.items = [{"id": 1, "v": "a"}, {"id": 1, "v": "a"}]
    found, _ = look(poll_of(feed), {})
    assert len(found) == 1


def test_item_that_changes_back_is_an_event_with_a_key_of_its_own(feed: Feed) -> None:
    poll, keys = poll_of(feed), []
    cursor: Mapping[str, Any] = {}
    for value in "aba":
        feed.items = [{"id": 1, "v": value}]
        found, cursor = look(poll, cursor)
        keys += [report.key for report in found]
    assert len(set(keys)) == 3


def test_item_that_goes_and_comes_back_as_it_was_is_an_event_with_a_key_of_its_own(
    feed: Feed,
) -> None:
    poll, found = poll_of(feed), []
    cursor: Mapping[str, Any] = {}
    for items in ([{"id": 1}], [], [{"id": 1}], [], [{"id": 1}]):
        feed.items = items
        some, cursor = look(poll, cursor)
        found += some
    assert summary(found) == [(1, "new")] * 3
    assert len({report.key for report in found}) == 3


def test_of_several_items_with_one_key_the_first_counts_and_that_is_noted_once(feed: Feed) -> None:
    noted: list[str] = []
    poll = poll_of(feed, noted=noted)
    feed.items = [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}, {"id": 1, "v": "a"}]
    found, cursor = look(poll, {})
    assert [report.payload["item"]["v"] for report in found] == ["a"]
    for other in (1, 2):
        feed.items = [*feed.items, {"id": 3, "v": other}]  # another response, not a 304
        found, cursor = look(poll, cursor)
        assert [each for each in summary(found) if each[0] == 1] == []
    [line] = noted
    assert "several items have the key '1'" in line


def test_no_item_has_the_key_of_an_event_of_muster(feed: Feed) -> None:
    feed.items = [{"id": "muster:1"}]
    [report], _ = look(poll_of(feed), {})
    assert report.key is not None
    assert not report.key.startswith(OWN_KEYS)


def test_what_is_there_at_first_is_no_event_unless_asked_for(feed: Feed) -> None:
    poll = poll_of(feed, existing="ignore")
    feed.items = [{"id": 1}]
    found, cursor = look(poll, {})
    assert found == []
    feed.items = [{"id": 1}, {"id": 2}]
    assert summary(look(poll, cursor)[0]) == [(2, "new")]


def test_without_items_the_response_is_one(feed: Feed) -> None:
    poll = make_poll(url=feed.url, existing="report")
    feed.items = [1]
    [report], cursor = look(poll, {})
    assert report.payload["item"] == {"data": {"items": [1]}}
    feed.items = [1, 2]
    [report], _ = look(poll, cursor)
    assert report.payload["change"] == "changed"


def test_many_items_come_a_hundred_at_a_time_each_with_its_cursor(feed: Feed) -> None:
    feed.items = [{"id": number} for number in range(250)]
    steps = list(poll_of(feed).look({}))
    assert [len(found) for found, _ in steps] == [100, 100, 50]
    assert "etag" not in steps[0][1], "who dies here fetches the rest again"
    rest, _ = look(poll_of(feed), steps[0][1])
    assert [report.payload["item"]["id"] for report in rest] == list(range(100, 250))


def test_keys_are_put_into_headers_and_sent_to_no_other_server(feed: Feed) -> None:
    headers = {"Authorization": {"$text": ["Bearer ", {"$key": "installation/feed"}]}}
    look(make_poll(url=feed.url.replace("/feed", "/moved"), headers=headers, key="s3cret"), {})
    assert [asked.get("authorization") for asked in feed.asked] == ["Bearer s3cret", None]


@pytest.mark.parametrize(
    "key", ["tok-secret\nline2", "t\u00f6k-secret", "tok\0secret", " tok-secret", "tok\u2028secret"]
)
@pytest.mark.parametrize("is_part", [True, False])
def test_key_that_no_header_may_have_is_a_failure_that_does_not_tell_it(
    feed: Feed, key: str, is_part: bool
) -> None:
    reference: Any = {"$key": "installation/feed"}
    value = {"$text": [reference, " "]} if is_part else reference
    with pytest.raises(Failed) as failed:
        look(poll_of(feed, headers={"X-Feed": value}, key=key), {})
    assert str(failed.value) == "header X-Feed: its key has characters that no header may have"
    assert not feed.asked


def test_compressed_response_is_read_and_no_other_one(feed: Feed) -> None:
    feed.items = [{"id": 1}]
    feed.headers = {"Content-Encoding": "gzip"}
    assert summary(look(poll_of(feed), {})[0]) == [(1, "new")]
    assert feed.asked[-1]["accept-encoding"] == "gzip"
    feed.headers = {"Content-Encoding": "gzip, gzip"}
    with pytest.raises(Failed, match="expected Content-Encoding: gzip"):
        look(poll_of(feed), {})


def test_response_beyond_the_limit_is_a_failure(feed: Feed, monkeypatch: Any) -> None:
    monkeypatch.setattr(http_polls, "LARGEST_BYTES", 1_000)
    feed.items = ["x" * 1_000]
    with pytest.raises(Failed, match="larger than 1,000 bytes"):
        look(poll_of(feed, item_key=""), {})


def test_validator_that_no_header_may_have_is_not_sent_back(feed: Feed) -> None:
    feed.headers = {"Last-Modified": "\u00e9"}
    _, cursor = look(poll_of(feed), {})
    assert "last_modified" not in cursor
    look(poll_of(feed), cursor)


@pytest.mark.parametrize("status", [404, 500, 503])
def test_answer_of_a_failure_is_one(feed: Feed, status: int) -> None:
    feed.status = status
    with pytest.raises(Failed, match=str(status)):
        look(poll_of(feed), {})


@pytest.mark.parametrize("items", ["/data/none", "/data"])
def test_pointer_that_leads_to_no_list_is_a_failure(feed: Feed, items: str) -> None:
    with pytest.raises(Failed, match="items"):
        look(poll_of(feed, items=items), {})


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/",
        "http://10.0.0.1/",
    ],
)
def test_address_that_is_not_public_is_refused(feed: Feed, url: str) -> None:
    with pytest.raises(Failed, match="no public address"):
        look(make_poll(url=url), {})


def test_server_that_nobody_runs_is_a_failure(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.0/8")
    with pytest.raises(Failed, match="request failed"):
        look(make_poll(url="http://127.0.0.1:9/"), {})
