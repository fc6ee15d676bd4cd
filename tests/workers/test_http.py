"""HTTP actions reach what they may, and nothing else, whatever a server or a name says."""

from __future__ import annotations

import contextlib
import gzip
import ipaddress
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import runtimes
from workers.isolated import addresses
from workers.runtimes import Outcome, limits, warm


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]

    def answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length).decode()
        self.asked.append(
            {
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": body,
            }
        )
        name = self.path.strip("/").partition("?")[0]
        getattr(self, f"give_{name}", self.give_json)()

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - named by http.server

    def give(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def give_json(self) -> None:
        self.give(200, json.dumps(self.asked[-1]).encode(), content_type="application/json")

    def give_text(self) -> None:
        self.give(200, "f\xfcr".encode("latin-1"), content_type="text/plain; charset=latin-1")

    def give_wrong(self) -> None:
        self.give(503, b"no\0t now " * 1_000)

    def give_busy(self) -> None:
        self.give(503, b"not now", retry_after="20")

    def give_elsewhere(self) -> None:
        port = self.server.server_address[1]  # type: ignore[index]
        self.give(302, b"x" * 1_000, location=f"http://other.test:{port}/json")

    def give_inside(self) -> None:
        self.give(302, b"", location="http://169.254.169.254/latest/meta-data")

    def give_round(self) -> None:
        self.give(302, b"", location="/round")

    def give_bomb(self) -> None:
        body = gzip.compress(b"0" * 50_000_000)
        self.give(200, body, content_encoding="gzip")

    def give_slowly(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(1_000):
            try:
                self.wfile.write(b".")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    def give_cookie(self) -> None:
        self.give(200, b"{}", set_cookie="session=canary", x_kept="yes")

    def give_control(self) -> None:
        self.give(200, b"\x01" * (512 * 1024), content_type="text/plain")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(settings) -> Iterator[Any]:
    """A server of our own, which the settings allow; `asked` is what it was asked."""
    asked: list[dict[str, Any]] = []
    handler = type("OurHandler", (Handler,), {"asked": asked})
    made: Any
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.1/32")
        made.url = f"http://127.0.0.1:{made.server_address[1]}"
        made.asked = asked
        yield made
        made.shutdown()


@pytest.fixture
def names(monkeypatch) -> dict[str, list[str]]:
    """What names mean: each time one is looked up, the next address of its list."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host in known:
            meant = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
            return real(meant, port, *args, **options)
        return real(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


def http(url: str, parameters: dict[str, Any] | None = None, **values: Any) -> Outcome:
    more = {
        name: values.pop(name)
        for name in ("limits", "timeout_seconds", "isolation")
        if name in values
    }
    # in this process, where tests say what names mean
    more.setdefault("isolation", "trusted")
    return runtimes.run(call("http", url, parameters=parameters or {}, options=values, **more))


def test_a_response_of_2xx_completes_with_status_headers_and_body(server):
    outcome = http(f"{server.url}/json")
    assert (outcome.event, outcome.reason) == ("complete", "succeeded")
    result = outcome.result
    assert (result["status"], result["url"], result["redirects"]) == (200, f"{server.url}/json", 0)
    assert result["headers"]["content-type"] == "application/json"
    assert result["body"]["method"] == "GET"
    assert result["duration_seconds"] >= 0


def test_parameters_fill_url_query_headers_and_body_each_as_it_may(server):
    outcome = http(
        f"{server.url}/users/{{name}}",
        {"name": "a/b?c#d", "count": 3, "tags": ["x"], "token": "t"},
        method="POST",
        headers={"Authorization": "Bearer {token}", "X-Not": "{missing}"},
        query={"n": "{count}", "not": "{missing}", "page": 2},
        body={"count": "{count}", "text": "n={count}", "tags": "{tags}", "not": "{missing}"},
    )
    asked = outcome.result["body"]
    assert (asked["method"], asked["path"]) == ("POST", "/users/a%2Fb%3Fc%23d?n=3&page=2")
    assert asked["headers"]["authorization"] == "Bearer t"
    assert "x-not" not in asked["headers"]
    assert json.loads(asked["body"]) == {"count": 3, "text": "n=3", "tags": ["x"]}


@pytest.mark.parametrize(
    ("url", "parameters"),
    [("/users/{name}", {"name": ".."}), ("/users/{name}", {}), ("/x", {"v": "a\r\nb: c"})],
)
def test_a_parameter_that_would_lead_elsewhere_is_refused(server, url, parameters):
    outcome = http(server.url + url, parameters, headers={"x": "a{v}"} if "v" in parameters else {})
    assert outcome.event == "fail"
    assert server.asked == []


def test_text_is_read_as_it_says(server):
    assert http(f"{server.url}/text").result["body"] == "für"


def test_any_other_status_fails_with_the_beginning_of_its_body(server):
    outcome = http(f"{server.url}/wrong")
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")
    assert outcome.result["message"] == "The server answered 503 Service Unavailable."
    assert outcome.result["status"] == 503
    assert outcome.result["body"].startswith("no\ufffdt now no")
    assert outcome.result["body_truncated"]


@pytest.mark.parametrize(("path", "after_seconds"), [("busy", 20), ("wrong", None)])
def test_503_defers_where_the_action_says_so(server, path, after_seconds):
    asked = f"{server.url}/{path}"
    outcome = http(asked, status_503="defer")
    assert (outcome.event, outcome.reason) == ("fail", "task_rejected")
    assert outcome.result.get("retry_after_seconds") == after_seconds
    assert outcome.result["status"] == 503
    assert http(asked).reason == http(asked, status_503="fail").reason == "action_failed"


def test_redirects_are_followed_and_the_actions_headers_stay_with_its_server(server, names):
    names["other.test"] = ["127.0.0.1"]
    outcome = http(f"{server.url}/elsewhere", headers={"X-Key": "secret"})
    assert outcome.result["redirects"] == 1
    first, second = server.asked
    assert first["headers"]["x-key"] == "secret"
    assert "x-key" not in second["headers"]
    assert second["headers"]["host"].startswith("other.test:")


def test_no_redirect_is_followed_where_the_action_says_so(server):
    outcome = http(f"{server.url}/elsewhere", redirects=0)
    assert (outcome.event, outcome.result["status"]) == ("fail", 302)


def test_redirects_without_end_fail(server):
    outcome = http(f"{server.url}/round", redirects=3)
    assert "more often" in outcome.result["message"]
    assert len(server.asked) == 4


def test_a_redirect_to_where_it_may_not_go_is_refused(server):
    outcome = http(f"{server.url}/inside")
    assert (outcome.event, outcome.reason) == ("fail", "address_refused")
    assert "169.254.169.254" in outcome.result["message"]


def test_a_name_that_means_another_address_the_second_time_gains_nothing(server, names):
    # the answer that was checked is the one that is used
    names["rebinding.test"] = ["10.0.0.1", "127.0.0.1"]
    outcome = http(f"http://rebinding.test:{server.server_address[1]}/json")
    assert outcome.reason == "address_refused"
    assert outcome.result["message"].startswith("rebinding.test (10.0.0.1) is no public address")
    assert server.asked == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"],  # noqa: S104
)
def test_nothing_of_the_host_itself_is_reached_however_it_is_written(server, settings, host):
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="")
    outcome = http(f"http://{host}:{server.server_address[1]}/json")
    assert (outcome.event, outcome.reason) == ("fail", "address_refused")
    assert server.asked == []


def test_a_proxy_of_the_workers_environment_is_not_used(server, settings, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.1/32")
    outcome = http("http://10.0.0.1/")
    assert outcome.reason == "address_refused"
    assert server.asked == []


def test_a_response_is_limited_as_it_is_unpacked(server):
    outcome = http(f"{server.url}/bomb", limits={"output_mb": 0.1})
    assert (outcome.event, outcome.reason) == ("fail", "output_limit_exceeded")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_is_asked_for_the_name_at_the_address_that_was_checked(settings, names, tmp_path):
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    subprocess.run([*openssl, *files], check=True, capture_output=True)
    asked_for: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    context.sni_callback = lambda connection, name, context: asked_for.append(name)
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.1/32")
    names["named.test"] = ["127.0.0.1"]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True)

        threading.Thread(target=serve, daemon=True).start()
        outcome = http(f"https://named.test:{listening.getsockname()[1]}/")
    assert asked_for == ["named.test"]
    # and its certificate is looked at: this one is nobody's
    assert "certificate verify failed" in outcome.result["message"]


@pytest.mark.parametrize("where", ["main thread", "pool thread"])
def test_a_server_that_never_ends_is_left_at_the_time_limit(server, where):
    outcomes: list[Outcome] = []

    def ask() -> None:
        outcomes.append(http(f"{server.url}/slowly", timeout_seconds=0.4))

    started = time.monotonic()
    if where == "main thread":
        ask()
    else:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(timeout=60)
    assert (outcomes[0].event, outcomes[0].reason) == ("time_out", "run_timeout")
    assert time.monotonic() - started < 20


def test_a_request_in_a_thread_is_interrupted(server):
    asked = call("http", f"{server.url}/slowly", isolation="trusted")
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
    thread.start()
    wait_until(lambda: server.asked)
    time.sleep(1)  # it reads by now: an exception on the way there may leave a socket to the GC
    assert limits.interrupt(limits.name_of(asked.execution_id, asked.attempt))
    thread.join(timeout=60)
    assert outcomes[0].reason == "cancelled_running"


@pytest.mark.parametrize(
    "name", ["json", "text", "wrong", "elsewhere", "inside", "round", "bomb", "cookie"]
)
def test_outside_of_the_worker_it_ends_in_the_same_way(server, name):
    outcomes = [
        http(f"{server.url}/{name}", isolation=level, redirects=1)
        for level in ("trusted", "process")
    ]
    for outcome in outcomes:
        assert outcome.result.pop("duration_seconds") >= 0
        outcome.result.get("headers", {}).pop("date", None)
    assert outcomes[0] == outcomes[1]


def test_cookies_are_no_part_of_a_result(server):
    headers = http(f"{server.url}/cookie").result["headers"]
    assert headers["x-kept"] == "yes"
    assert "set-cookie" not in headers
    assert "canary" not in str(headers)


def test_the_largest_response_comes_back_whole_whatever_is_in_it(server):
    outcome = http(f"{server.url}/control", isolation="process")
    assert outcome.result["body"] == "\x01" * (512 * 1024)


def test_outside_of_the_worker_it_is_left_at_its_time_limit_and_cancelled(server):
    outcome = http(f"{server.url}/slowly", isolation="process", timeout_seconds=1.5)
    assert (outcome.event, outcome.reason) == ("time_out", "run_timeout")
    asked = call("http", f"{server.url}/slowly")
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
    number = len(server.asked)
    thread.start()
    wait_until(lambda: len(server.asked) > number)
    assert warm.interrupt(limits.name_of(asked.execution_id, asked.attempt))
    thread.join(timeout=60)
    assert outcomes[0].reason == "cancelled_running"


def test_a_server_that_is_not_there_is_told(server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        outcome = http(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert outcome.event == "fail"
    assert outcome.result["message"].startswith("The request failed: ")


def test_url_without_a_scheme_is_told_in_one_sentence():
    told = http("example.org").result["message"]
    assert told.startswith("The request failed: ")
    assert told.endswith(".")
    assert not told.endswith("..")


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1",  # noqa: S104
        "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "168.63.129.16", "100.100.100.200",
        "::", "::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::10.0.0.1",
        "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "fe80::1",
        "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "100::1",
        "2001:0:0:1:0:0:f5ff:fffe", "2001:10::1", "3fff::1", "5f00::1", "4000::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(text):
    assert not addresses.may_reach(ipaddress.ip_address(text), allowed=())


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::1.1.1.1", "::ffff:1.1.1.1"]
)
def test_addresses_that_are_public(text):
    assert addresses.may_reach(ipaddress.ip_address(text), allowed=())


@pytest.mark.parametrize("text", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"])
def test_a_network_that_is_allowed_is_so_in_every_form(text):
    allowed = addresses.networks("10.1.0.0/16, 192.168.0.0/24")
    assert addresses.may_reach(ipaddress.ip_address(text), allowed=allowed)
    assert not addresses.may_reach(ipaddress.ip_address("10.2.0.1"), allowed=allowed)
