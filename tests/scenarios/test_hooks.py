"""Webhooks of a real API process: from a signed delivery to the end of an execution."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests import servers
from tests.automation.hooks.vectors import mac
from tests.chaos import injection
from tests.scenarios.installation import REPOSITORY, Backend, Installation

SECRET, NEXT = "made-up-for-a-scenario", "made-up-for-the-next-one"
PARAMETERS: dict[str, Any] = {
    "path": "github",
    "profile": "github",
    "secrets": [{"$key": "scenario/hook"}, {"$key": "scenario/hook-next"}],
}
RULE: dict[str, Any] = {
    "ref": "scenario.pushed",
    "trigger_type": "core.webhook",
    "trigger_parameters": PARAMETERS,
    "criteria": {
        "trigger.headers['x-github-event']": {"type": "eq", "pattern": "push"},
        "trigger.body.ref": {"type": "eq", "pattern": "refs/heads/main"},
    },
    "action_ref": "core.echo",
    "parameters": {"text": "at {{ trigger.body.after }}"},
}
PUSH = json.dumps({"ref": "refs/heads/main", "after": "5fd2a1c"}).encode()
PATH = "/api/v1/hooks/github"


class Hooks:
    """An installation with an API process, and a hook that a rule answers."""

    def __init__(self, muster: Installation, backend: Backend) -> None:
        self.muster = muster
        if backend.name == "servers":  # embedded, it makes its own
            muster.environment["MUSTER_KEYRING"] = str(muster.directory / "keyring")
            muster.command("keys", "ring", "--add")
        self.key("create", SECRET)
        muster.client.call("install_rules", news=[RULE])

    def start(self, **environment: str) -> None:
        self.port = servers.free_port()
        self.service = self.muster.start_api(self.port, **environment)
        self.muster.wait_for(self._is_live, "the API does not listen")

    def key(self, verb: str, value: str, name: str = "hook") -> None:
        file = self.muster.directory / "value"
        file.write_text(value)
        self.muster.command("keys", verb, f"scenario/{name}", "--from-file", str(file))
        file.unlink()

    def send(
        self, id: str, *, body: bytes = PUSH, secret: str = SECRET, **headers: str
    ) -> httpx.Response:
        return httpx.post(
            f"http://127.0.0.1:{self.port}{PATH}",
            content=body,
            headers={**signed(id, body, secret), **headers},
            timeout=60,
        )

    def outcomes(self) -> dict[str, int]:
        items = json.loads(self.muster.command("hook", "list", "--json"))["items"]
        [hook] = [each for each in items if each["path"] == "github"]
        return {each["outcome"]: each["total"] for each in hook["deliveries"]}

    def execution_of(self, event_id: str) -> Any:
        """The execution that answered an event, as soon as it has ended."""

        def look() -> list[Any]:
            rows = self.muster.client.call("enforcements", event_ids=[UUID(event_id)])
            return [row for row in rows if row.state == "executed"]

        [row] = self.muster.wait_for(look, "the event is not answered")
        return self.muster.wait_for_end(row.execution_id)

    def _is_live(self) -> bool:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/api/v1/health/live", timeout=10)
        except httpx.TransportError:
            return False
        return answer.status_code == 200


def signed(id: str, body: bytes = PUSH, secret: str = SECRET) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "X-Hub-Signature-256": f"sha256={mac(secret, body)}",
        "X-GitHub-Delivery": id,
        "X-GitHub-Event": "push",
    }


@pytest.fixture(scope="module")
def hooks(backend: Backend) -> Iterator[Hooks]:
    with contextlib.closing(Installation(backend)) as muster:
        hooks = Hooks(muster, backend)
        muster.start_executor()
        muster.start_worker("w1")
        hooks.start()
        muster.ready()
        yield hooks


def test_signed_delivery_ends_in_one_execution(hooks: Hooks) -> None:
    first = hooks.send("one")
    again = hooks.send("one")
    forged = hooks.send("two", secret=NEXT)
    other = hooks.send("three", body=b'{"ref": "refs/heads/next"}')

    assert [each.status_code for each in (first, again, forged, other)] == [202, 200, 401, 202]
    id = first.json()["event_id"]
    assert again.json() == {"event_id": id, "duplicate": True}
    assert hooks.execution_of(id).result == {"text": "at 5fd2a1c"}
    assert (
        hooks.muster.client.call("enforcements", event_ids=[UUID(other.json()["event_id"])]) == []
    )
    hooks.muster.wait_for(
        lambda: hooks.outcomes().items() >= {"duplicate": 1, "unsigned": 1}.items(),
        "not counted",
    )
    hooks.muster.check_accounts()


def test_fifty_equal_deliveries_at_once_are_one_event(hooks: Hooks) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: hooks.send("at once"), range(50)))
    statuses = Counter(each.status_code for each in answers)
    # no more than wait for the threads are taken; the rest is asked to come again
    assert statuses[202] == 1
    assert statuses[200] + statuses[503] == 49
    ids = {each.json()["event_id"] for each in answers if each.status_code < 300}
    assert len(ids) == 1


def test_rotation_refuses_no_delivery(hooks: Hooks) -> None:
    """A sender changes over to the next secret while it sends."""
    statuses: Counter[int] = Counter()
    secret, over = [SECRET], threading.Event()

    def deliver(sender: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            statuses[hooks.send(f"rotation {sender} {number}", secret=secret[0]).status_code] += 1

    def go_on() -> None:
        """Let some more of them be answered."""
        then = statuses.total() + 6
        hooks.muster.wait_for(lambda: statuses.total() >= then, "nothing is delivered")

    senders = [threading.Thread(target=deliver, args=[n]) for n in range(2)]
    for each in senders:
        each.start()
    try:
        go_on()
        hooks.key("create", NEXT, "hook-next")
        secret[0] = NEXT
        go_on()
        hooks.key("rotate", NEXT)
        hooks.muster.command("keys", "revoke", "scenario/hook-next")
        go_on()
    finally:
        over.set()
        for each in senders:
            each.join()
        hooks.key("rotate", SECRET)
    assert set(statuses) == {202}


def test_forged_address_of_a_stranger_is_not_believed(hooks: Hooks) -> None:
    """uvicorn believes 127.0.0.1 alone; a stranger comes from another address."""
    forged = {"X-Forwarded-For": "203.0.113.9"}
    for source in ("127.0.0.2", "127.0.0.1"):
        link = http.client.HTTPConnection("127.0.0.1", hooks.port, source_address=(source, 0))
        link.request("POST", f"/api/v1/hooks/from-{source}", b"{}", forged)
        assert link.getresponse().status == 404
        link.close()

    def audited() -> dict[str, str]:
        listed = hooks.muster.command("audit", "list", "--json", "--permission", "hooks.receive")
        found = {row["object_id"]: row["address"] for row in json.loads(listed)["items"]}
        return found if len(found) == 2 else {}

    assert hooks.muster.wait_for(audited, "not audited") == {
        "from-127.0.0.2": "127.0.0.2", "from-127.0.0.1": "203.0.113.9",
    }  # fmt: skip


def test_hostile_deliveries_are_refused_and_the_api_goes_on(hooks: Hooks) -> None:
    statuses = {name: status_of(hooks.port, request) for name, (_, request) in HOSTILE.items()}
    assert statuses == {name: expected for name, (expected, _) in HOSTILE.items()}
    assert hooks.send("after all").status_code == 202


def test_large_body_in_pieces_is_taken_of_a_known_path_alone(hooks: Hooks) -> None:
    large = json.dumps({"ref": "x", "text": "y" * 200_000}).encode()
    assert hooks.send("large", body=large).status_code == 202
    # the body of an unknown path is not read: the answer comes before it ends
    with socket.create_connection(("127.0.0.1", hooks.port), timeout=30) as link:
        link.sendall(
            b"POST /api/v1/hooks/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n"
        )
        link.sendall(b"\r\n" + b"x" * 70_000)
        assert link.recv(100).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_api_that_dies_after_the_commit_leaves_an_event_that_a_repetition_finds(
    install: Callable[..., Installation], backend: Backend
) -> None:
    muster = install()
    hooks = Hooks(muster, backend)
    points: Path = muster.directory / "failpoints"
    for each in ("armed", "fired"):
        (points / each).mkdir(parents=True)
    name = injection.file_name("api", "automation.recording:record_many:send_soon", injection.KILL)
    path = f"{REPOSITORY / 'tests' / 'chaos' / 'injected'}:{REPOSITORY}"
    muster.start_executor()
    muster.start_worker("w1")
    hooks.start(PYTHONPATH=path, **{injection.DIRECTORY: str(points), injection.ROLE: "api"})
    muster.ready()
    (points / "armed" / name).touch()
    with pytest.raises(httpx.TransportError):
        hooks.send("once")
    muster.wait_for(lambda: hooks.service.process.poll() is not None, "the API goes on")
    hooks.start()
    again = hooks.send("once")
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert hooks.execution_of(again.json()["event_id"]).result == {"text": "at 5fd2a1c"}


# --- hostile --------------------------------------------------------------------------------------


def status_of(port: int, request: bytes) -> int:
    """The status that is answered to these bytes; 0 if the connection is closed without one."""
    line = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            line = link.recv(1_000).partition(b"\r\n")[0]
    return int(line.split(b" ")[1]) if line else 0


def post(path: str, body: bytes, *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body


RIGHT = [f"{name}: {value}" for name, value in signed("hostile").items()]
HOSTILE: dict[str, tuple[int, bytes]] = {
    "no signature": (401, post(PATH, PUSH)),
    "no body": (401, post(PATH, b"", *RIGHT)),
    "two signatures": (401, post(PATH, PUSH, *RIGHT, "X-Hub-Signature-256: sha256=00")),
    "signature that is not ASCII": (401, post(PATH, PUSH, "X-Hub-Signature-256: sha256=\xe4\xff")),
    "compressed": (401, post(PATH, b"\x1f\x8b" + PUSH, *RIGHT, "Content-Encoding: gzip")),
    "path that is not ASCII": (404, post("/api/v1/hooks/%C3%A4%00", PUSH, *RIGHT)),
    "path that climbs": (404, post("/api/v1/hooks/../hooks/%2e%2e/github", PUSH, *RIGHT)),
    "path with a query": (202, post(PATH + "?a=b", PUSH, *RIGHT)),
    "larger than allowed": (413, post(PATH, b"x" * 1_048_577, *RIGHT)),
    "huge headers": (400, post(PATH, PUSH, *RIGHT, "X-Filler: " + "x" * 200_000)),
    "two lengths": (400, post(PATH, PUSH, *RIGHT, "Content-Length: 1")),
    "another method": (405, post(PATH, PUSH, *RIGHT).replace(b"POST", b"PATCH", 1)),
}
