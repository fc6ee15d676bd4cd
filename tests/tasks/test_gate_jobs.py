"""The URL that a message names is asked within the limits of HTTP actions, and no further."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orchestrator.queues.gates import jobs
from orchestrator.queues.gates.replies import PAUSED
from tasks import gate_jobs


class Jobs(BaseHTTPRequestHandler):
    """A job service on this host."""

    asked: list[str]
    over: threading.Event

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/hangs":
            self.over.wait(20)
            return
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/J1")
        self.send_header("Cache-Control", "max-age=7")
        self.end_headers()
        if self.path != "/moved":
            self.wfile.write(b'"Paused"')

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Any]:
    handler: Any = type("Handler", (Jobs,), {"asked": [], "over": threading.Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{server.server_port}"
    yield handler
    handler.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def allowed(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.0/8")


@pytest.mark.usefixtures("allowed")
def test_job_in_an_allowed_network_is_asked(service: Any) -> None:
    answer = jobs.answer_of(gate_jobs.ask(f"{service.url}/J1?partition=a%20b"))
    assert (answer.job_status, answer.age_seconds) == (PAUSED, 7)
    assert service.asked == ["/J1?partition=a%20b"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254"])
def test_job_in_another_network_is_not_asked_and_counts_as_active(host: str, service: Any) -> None:
    url = service.url.replace("127.0.0.1", host)
    assert jobs.answer_of(gate_jobs.ask(f"{url}/J1")).job_status == jobs.ACTIVE
    assert service.asked == []


@pytest.mark.usefixtures("allowed")
def test_redirect_is_not_followed(service: Any) -> None:
    assert jobs.answer_of(gate_jobs.ask(f"{service.url}/moved")).job_status == jobs.ACTIVE
    assert service.asked == ["/moved"]


@pytest.mark.usefixtures("allowed")
def test_service_that_hangs_is_not_waited_for(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ANSWER_SECONDS", 0.5)
    begun = time.monotonic()
    assert jobs.answer_of(gate_jobs.ask(f"{service.url}/hangs")).job_status == jobs.ACTIVE
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://", "no url", "http://[::1", "{x}"])
def test_what_is_no_url_counts_as_active(url: str) -> None:
    assert jobs.answer_of(gate_jobs.ask(url)).job_status == jobs.ACTIVE
