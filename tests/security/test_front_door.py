"""What strangers may do to a real API process: little, and nobody else waits for it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.templatetags.static import static

from settings import connections, http
from tests import servers
from tests.scenarios.installation import REPOSITORY, Backend, Installation, Service
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("front_door")]

PASSWORD = "made-up-for-a-test"


class Door:
    """An API process, and how its callers come to it."""

    def __init__(self, muster: Installation, **environment: str) -> None:
        self.muster = muster
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.service: Service = muster.start_api(self.port, **environment)
        wait_until(self._answers, "the API does not answer", seconds=120)
        self.token = muster.token(f"ci-{self.port}")

    def get(self, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.get(self.url + path, headers=headers, timeout=60, **options)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/live", timeout=10).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def muster() -> Iterator[Installation]:
    backend = Backend()
    installation = Installation(backend)
    installation.environment["DJANGO_SUPERUSER_PASSWORD"] = PASSWORD
    installation.command(
        "createsuperuser", "--noinput", "--username", "olga", "--email", "olga@example.org"
    )
    yield installation
    installation.close()
    backend.close()


@pytest.fixture(scope="module")
def door(muster: Installation) -> Door:
    return Door(muster)


@pytest.fixture(scope="module")
def tls_door(muster: Installation) -> Door:
    return Door(muster, MUSTER_TLS="on", ALLOWED_HOSTS="localhost,127.0.0.1,muster.example.org")


# --- connections that do not come to the point ----------------------------------------------------


def seconds_of_an_answer(door: Door) -> float:
    began_at = time.monotonic()
    assert door.get("/api/v1/executions?limit=1").status_code == 200
    return time.monotonic() - began_at


def closed_after(sender: Callable[[socket.socket], None], client: socket.socket) -> float:
    """Seconds until the server hangs up; `sender` runs meanwhile."""
    began_at = time.monotonic()
    thread = threading.Thread(target=sender, args=(client,), daemon=True)
    thread.start()
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - began_at


def drip(text: bytes, *, seconds: float = 40.0) -> Callable[[socket.socket], None]:
    def send(client: socket.socket) -> None:
        ends_at = time.monotonic() + seconds
        try:
            while time.monotonic() < ends_at:
                client.sendall(text)
                time.sleep(0.2)
        except OSError:
            return

    return send


SLOW = {
    "nothing": (b"", drip(b"")),
    "half a line": (b"GET / HT", drip(b"")),
    "endless headers, one by one": (b"GET / HTTP/1.1\r\n", drip(b"X-A: b\r\n")),
    "empty lines": (b"", drip(b"\r\n")),
    "a body of a stranger that does not come": (
        b"POST /api/v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
        drip(b""),
    ),
    "a login that does not come": (
        b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
        drip(b""),
    ),
    "half a second request": (
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT",
        drip(b"T"),
    ),
}


def test_connections_that_do_not_come_to_the_point_are_closed(door: Door) -> None:
    def one(name: str) -> tuple[str, float]:
        first, sender = SLOW[name]
        with door.connect() as client:
            client.sendall(first)
            return name, closed_after(sender, client)

    with ThreadPoolExecutor(len(SLOW)) as pool:
        took = dict(pool.map(one, SLOW))
    # 15 s, and as much for a machine that does much else
    assert {name for name, seconds in took.items() if seconds > 30} == set(), took
    assert connections.HEADER_SECONDS <= 10
    assert http.BODY_GAP_SECONDS <= 10


def test_headers_without_an_end_are_refused_before_they_fill_the_memory(door: Door) -> None:
    header = b"X-Padding: " + b"x" * 8_000 + b"\r\n"
    taken = 0

    def pour(client: socket.socket) -> None:
        nonlocal taken
        with contextlib.suppress(OSError):
            while taken < 100_000_000:
                client.sendall(header)
                taken += len(header)

    with door.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        closed_after(pour, client)
    assert taken < 10_000_000, "more than what the sockets hold"


def test_many_strangers_with_slow_bodies_stop_nobody(door: Door) -> None:
    """600 connections, each with half a body and no token, while somebody asks."""
    request = (
        b"POST /api/v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
        b"Content-Type: application/json\r\n\r\n{"
    )
    usual = seconds_of_an_answer(door)
    strangers = [door.connect() for _ in range(600)]
    try:
        for client in strangers:
            client.sendall(request)
        assert seconds_of_an_answer(door) < 5 + 10 * usual
        answers = b"".join(client.recv(64) for client in strangers)
        assert b" 401 " in answers
        assert b" 200 " not in answers
    finally:
        for client in strangers:
            client.close()


def test_form_of_a_megabyte_is_refused(door: Door) -> None:
    with httpx.Client(base_url=door.url, timeout=60) as client:
        refused = client.post("/admin/login/", data={"username": "x" * 900_000})
    assert refused.status_code == 413


# --- logins ---------------------------------------------------------------------------------------


def log_in(door: Door, name: str, address: str, password: str) -> tuple[int, str]:
    """One attempt, from this address: a proxy on this host says so."""
    with httpx.Client(base_url=door.url, timeout=60) as client:
        headers = {"x-forwarded-for": address}
        client.get("/admin/login/", headers=headers)
        data = {
            "username": name,
            "password": password,
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
        }
        response = client.post("/admin/login/", data=data, headers=headers)
        return response.status_code, response.text


def test_request_is_answered_in_2_s_beside_32_logins(door: Door) -> None:
    usual = max(seconds_of_an_answer(door) for _ in range(8))
    done = threading.Event()

    def guess(number: int) -> None:
        while not done.is_set():
            log_in(door, f"user{number}", f"198.51.100.{number}", "wrong")

    with ThreadPoolExecutor(32) as pool:
        guesses = [pool.submit(guess, number) for number in range(32)]
        time.sleep(1)
        try:
            took = [seconds_of_an_answer(door) for _ in range(8)]
        finally:
            done.set()
        for each in guesses:
            each.result()
    assert max(took) < 2 + 10 * usual, took


def test_login_is_braked_after_five_failures_and_logged_with_the_address(door: Door) -> None:
    texts = []
    for _ in range(12):  # each takes a moment, so the first waits may pass in between
        texts.append(log_in(door, "olga", "203.0.113.9", "wrong")[1])
        if "Too many failed logins" in texts[-1]:
            break
    assert ["Too many failed logins" in text for text in texts[:5]] == [False] * 5
    assert "Too many failed logins" in texts[-1]
    log = door.service.log()
    assert "login failed" in log
    assert "203.0.113.9" in log


# --- lines of the log -----------------------------------------------------------------------------


def test_refused_requests_do_not_fill_the_log(door: Door) -> None:
    before = len(door.service.log())
    with httpx.Client(base_url=door.url, timeout=60) as client:
        for number in range(300):
            assert client.get(f"/api/v1/executions?n={number}").status_code == 401
            assert client.get("/", headers={"host": f"evil{number}.example"}).status_code == 400
    with door.connect() as broken:
        broken.sendall(b"\x00\x01\x02\r\n\r\n")
        broken.recv(100)
    written = door.service.log()[before:]
    assert len(written.splitlines()) < 200
    assert "Traceback" not in written


# --- headers --------------------------------------------------------------------------------------

ANSWERS = [
    "/api/v1/executions",
    "/api/v1/nothing",
    "/v1/dlq",
    "/v1/nothing",
    "/api/v1/openapi.json",
    "/metrics",
    "/health/live",
]
PAGES = ["/admin/login/", "/nothing", "/api/v1/docs"]


@pytest.mark.parametrize("path", [*ANSWERS, *PAGES, static("unfold/js/app.js")])
def test_no_answer_names_the_server(door: Door, path: str) -> None:
    assert "server" not in door.get(path).headers


@pytest.mark.parametrize("path", ANSWERS)
def test_answers_of_the_api_are_kept_nowhere(door: Door, path: str) -> None:
    for answer in (door.get(path), httpx.get(door.url + path, timeout=60)):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("line", [b"POST /api/v1/executions", b"PATCH /v1/dlq/entry/1"])
def test_refusal_before_any_view_is_kept_nowhere_either(door: Door, line: bytes) -> None:
    with door.connect() as client:
        client.sendall(
            line + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
        )
        answer = client.recv(65_536).decode().lower()
    assert answer.startswith("http/1.1 401 ")
    assert "cache-control: no-store" in answer
    assert "server:" not in answer


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_from_elsewhere_and_run_nothing_in_them(door: Door, path: str) -> None:
    page = door.get(path)
    policy = dict(
        part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'self'"
    assert "unsafe-inline" not in policy["script-src"]
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"


# --- who may read what ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/api/v1/docs", "/metrics"])
def test_strangers_learn_nothing_of_the_api_and_its_load(door: Door, path: str) -> None:
    assert httpx.get(door.url + path, timeout=60).status_code == 401
    assert door.get(path).status_code == 200


def test_browser_of_a_stranger_is_sent_to_the_login(door: Door) -> None:
    answer = httpx.get(f"{door.url}/api/v1/docs", headers={"accept": "text/html"}, timeout=60)
    assert answer.headers["location"] == "/admin/login/?next=/api/v1/docs"


# --- TLS ------------------------------------------------------------------------------------------


def test_deploy_check_has_nothing_to_say_with_tls_on(muster: Installation) -> None:
    checked = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "DEBUG"],
        env=muster.environment | {"MUSTER_TLS": "on", "ALLOWED_HOSTS": "muster.example.org"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "System check identified no issues" in checked.stdout + checked.stderr
    assert "WARNINGS" not in checked.stderr


def test_http_is_redirected_and_probes_are_not(tls_door: Door) -> None:
    page = httpx.get(f"{tls_door.url}/admin/", headers={"host": "muster.example.org"}, timeout=60)
    assert page.status_code == 301
    assert page.headers["location"] == "https://muster.example.org/admin/"
    for path in ("/health/live", "/health/ready", "/api/v1/health/live"):
        assert httpx.get(tls_door.url + path, timeout=60).status_code == 200


def test_https_behind_a_proxy_has_hsts_and_secure_cookies(tls_door: Door) -> None:
    headers = {
        "host": "muster.example.org",
        "x-forwarded-proto": "https",
        "x-forwarded-for": "203.0.113.7",
    }
    with httpx.Client(base_url=tls_door.url, headers=headers, timeout=60) as client:
        page = client.get("/admin/login/")
        assert page.status_code == 200
        assert page.headers["strict-transport-security"] == "max-age=31536000; includeSubDomains"
        (cookie,) = page.headers.get_list("set-cookie")
        assert "; Secure" in cookie
        token = cookie.partition("=")[2].partition(";")[0]
        data = {"username": "olga", "password": PASSWORD, "csrfmiddlewaretoken": token}
        with_cookie = {
            "cookie": f"csrftoken={token}",
            "origin": "https://muster.example.org",
            "referer": "https://muster.example.org/admin/login/",
        }
        done = client.post("/admin/login/", data=data, headers=with_cookie)
        assert done.status_code == 302
        session = [each for each in done.headers.get_list("set-cookie") if "sessionid" in each]
        assert all("; Secure" in each and "HttpOnly" in each for each in session)
        assert session


def test_stranger_cannot_say_that_he_came_by_https(muster: Installation) -> None:
    door = Door(muster, MUSTER_TLS="on", FORWARDED_ALLOW_IPS="192.0.2.1")
    page = httpx.get(f"{door.url}/admin/", headers={"x-forwarded-proto": "https"}, timeout=60)
    assert page.status_code == 301


def test_it_serves_https_itself(muster: Installation, authority: Any) -> None:
    made = authority.certificate("IP:127.0.0.1")
    port = servers.free_port()
    service = muster.start(
        "https", "manage.py", "api", "--port", str(port),
        "--tls-certificate", str(made.certificate), "--tls-key", str(made.key), MUSTER_TLS="on",
    )  # fmt: skip
    believed = ssl.create_default_context(cafile=str(authority.file))
    client = httpx.Client(verify=believed, timeout=60)

    def answers() -> bool:
        assert service.process.poll() is None, service.log()
        try:
            return client.get(f"https://127.0.0.1:{port}/admin/login/").status_code == 200
        except httpx.TransportError:
            return False

    with client:
        wait_until(answers, "it does not answer", seconds=60)
