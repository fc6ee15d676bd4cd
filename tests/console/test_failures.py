"""Pages for what went wrong: none is a bare one, and each says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from orchestrator.console import failures, orders, outage
from orchestrator.console.pages import now as now_page
from tests.logged import logged

NOW = "/console/"


@pytest.fixture(autouse=True)
def no_outage() -> Iterator[None]:
    outage.is_over()
    yield
    outage.is_over()


@pytest.fixture
def browser(admin_client: Client) -> Client:
    """One that gets the page of an error, as people do."""
    admin_client.raise_request_exception = False
    return admin_client


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def failing(look: object) -> None:
        raise error

    monkeypatch.setattr(now_page, "recent", failing)


def test_a_fault_gets_a_page_with_an_id_that_the_log_has(
    browser: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail(monkeypatch, ZeroDivisionError("secret detail"))
    answer = browser.get(NOW)
    html = answer.content.decode()
    assert answer.status_code == 500
    found = re.search(r"<code>(\w{32})</code>", html)
    assert found
    assert found[1] == answer["X-Request-ID"]
    assert "secret detail" not in html
    (line,) = logged(caplog, "page failed")
    assert (line["request_id"], line["path"]) == (found[1], NOW)
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)


def test_a_database_that_is_away_is_said_with_since_when_and_where_one_goes_on(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, OperationalError("connection refused"))
    first = browser.get(NOW, {"a": "1"})
    assert first.status_code == 503
    assert first["Retry-After"] == "5"
    html = first.content.decode()
    assert 'data-again="/console/?a=1"' in html
    since = re.search(r'<time datetime="([^"]+)">', html)
    assert since
    again = re.search(r'<time datetime="([^"]+)">', browser.get(NOW).content.decode())
    assert again
    # a request that the database answered ended the first outage
    assert again[1] >= since[1]


def test_an_outage_has_one_beginning_until_the_database_answers() -> None:
    began = outage.began()
    assert outage.began() == began
    outage.is_over()
    assert outage.began() - began >= timedelta(0)
    assert outage.began() != began


def test_after_a_form_that_failed_one_goes_back_to_its_page(
    browser: Client, monkeypatch: pytest.MonkeyPatch, worker: object
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("connection refused")

    order = orders.ORDERS["cordon"]
    monkeypatch.setitem(orders.ORDERS, "cordon", type(order)(**{**vars(order), "verb": away}))
    url = reverse("console:order", args=["w1"])
    form = {"act": "cordon", "reason": "x", "back": "/console/workers/w1"}
    html = browser.post(url, form).content.decode()
    assert 'data-again="/console/workers/w1"' in html
    assert "may not have been done" in html
    html = browser.post(url, {**form, "back": "https://elsewhere.example/"}).content.decode()
    assert 'data-again="/console/"' in html


def test_an_address_without_a_page_is_said_to_have_none(browser: Client) -> None:
    answer = browser.get("/console/nothing/<b>")
    assert answer.status_code == 404
    assert "There is no page at /console/nothing/&lt;b&gt;." in answer.content.decode()
    assert "There is no page" not in browser.get("/nothing").content.decode()


def test_the_admin_keeps_its_own_pages() -> None:
    request = HttpRequest()
    request.path = request.path_info = "/admin/"
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        answer = failures.server_error(request)
    assert b"Something went wrong here" in answer.content
