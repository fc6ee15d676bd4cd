"""Two canaries, one given as a key and one as a plain secret, are set free in every way that there
is. Afterwards the first is found nowhere, and the second only where the docs say."""

from __future__ import annotations

import base64
import contextlib
import html
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urljoin

import httpx
import psycopg
import pytest
from psycopg import sql

from tests import servers
from tests.scenarios.installation import REPOSITORY, Backend, Installation

pytestmark = pytest.mark.slow

KEY = "canary/Key+1f0e7c59=aa"
PLAIN = "canary/Plain+7d3b2a=bb"
REFERENCE = {"$key": "scenario/canary"}

ALLOWED = {("orchestrator_execution", "parameters"), ("workflows_task", "context")}
"""Where the value of a plain parameter, and of a task's context, is stored."""

PAGES_MOST = 400


@cache
def forms(value: str) -> set[str]:
    """All that would give the value away."""
    content = value.encode()
    found = {value, json.dumps(value)[1:-1], quote(value, safe=""), quote(value), content.hex(),
             content.hex().upper()}  # fmt: skip
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"x" * before + content).decode()
            found.add(text[(8 * before + 5) // 6 : (8 * before + 8 * len(content)) // 6])
    # and the longer half of it
    return found | {value[:14], value[-14:]}


def leaks(content: str | bytes, *values: str) -> list[str]:
    searched = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return [form for value in values for form in forms(value) if form.encode() in searched]


@pytest.fixture(scope="module")
def muster(backend: Backend) -> Iterator[Installation]:
    """An installation in which everything was done with the canaries that can be."""
    installation = Installation(backend)
    try:
        if backend.name == "servers":  # embedded, it makes its own
            ring = installation.directory / "keyring"
            installation.environment["MUSTER_KEYRING"] = str(ring)
            installation.command("keys", "ring", "--add")
        _create_key(installation)
        installation.start_executor()
        installation.start_worker("w1", concurrency=4)
        installation.start_worker("w2", concurrency=2, pool="threads")
        installation.ready()
        installation.client.call("tap", name="canary.tap", routing_key="#")
        _play(installation)
        yield installation
    finally:
        installation.close()


def _create_key(muster: Installation) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "keys", "create", "scenario/canary"],
        env=muster.environment,
        cwd=REPOSITORY,
        input=KEY,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _play(muster: Installation) -> None:
    """Each runtime, each way to end, on both pools; a task whose steps fail, and entries of it."""
    given: dict[str, Any] = {
        "token": REFERENCE,
        "header": {"$text": ["Bearer ", REFERENCE]},
        "card": PLAIN,
    }
    ids = [
        muster.submit(
            f"scenario.{action}",
            given | ({"fails": True} if fails else {}),
            worker_id=muster.worker(worker).id,
        )
        for action in ("leak", "leak_process", "leak_shell")
        for fails in (False, True)
        for worker in ("w1", "w2")
    ]
    task = muster.client.call("request_task_in", namespace="scenario", name="leaks",
                              context={"card": PLAIN})  # fmt: skip
    ended = muster.wait_for_ends(ids)
    assert {row.status for row in ended} == {"completed", "failed"}
    # the sign that there was something to mask
    assert not [row.result for row in ended if "***" not in json.dumps(row.result)]

    def is_blocked() -> bool:
        return bool(muster.client.call("task", id=task).state == "blocked_by_failures")

    muster.wait_for(is_blocked, "the task is not blocked")
    for kind, id in (("execution", ids[0]), ("task", task)):
        with contextlib.suppress(subprocess.CalledProcessError):  # the task has its entry already
            muster.command("dlq", "open", f"--{kind}", str(id), "--detail", "a canary")
    # a second request with the same key, and one that is refused
    body: dict[str, Any] = {"parameters": given, "idempotency_key": "canary"}
    assert len({muster.submit("scenario.leak", **body) for _ in range(2)}) == 1
    muster.played = SimpleNamespace(ids=ids, task=task)  # type: ignore[attr-defined]


# --- what is stored ------------------------------------------------------------------------------


def test_no_column_has_the_key_and_only_two_have_the_plain_value(muster: Installation) -> None:
    found: dict[tuple[str, str], set[str]] = {}
    cells = 0
    for table, column, content in _cells(muster):
        cells += 1
        if values := leaks(content, KEY, PLAIN):
            found.setdefault((table, column), set()).update(values)
    assert cells > 1_000
    assert found.keys() == ALLOWED
    assert not [form for forms in found.values() for form in forms if leaks(form, KEY)]


def _cells(muster: Installation) -> Iterator[tuple[str, str, str]]:
    """Every value in every table, as text."""
    url = muster.environment.get("DATABASE_URL")
    if url is None:
        with contextlib.closing(sqlite3.connect(muster.directory / "muster.db")) as database:
            database.row_factory = sqlite3.Row
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in names.fetchall():
                for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608
                    for column in row.keys():  # noqa: SIM118 - a row is no mapping
                        yield table, column, _text(row[column])
        return
    with psycopg.connect(url) as connection:
        relations = connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND "
                                   "relnamespace = 'public'::regnamespace")  # fmt: skip
        for (table,) in relations.fetchall():
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
            columns = [each.name for each in rows.description or ()]
            for row in rows:
                for column, value in zip(columns, row, strict=True):
                    yield table, column, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("latin-1")  # an ASCII text in it stays one
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)


def test_dump_has_no_key(muster: Installation) -> None:
    url = muster.environment.get("DATABASE_URL")
    if url is None:
        with contextlib.closing(sqlite3.connect(muster.directory / "muster.db")) as database:
            dump = "\n".join(database.iterdump())
    else:
        assert muster.backend.postgres is not None
        program = str(servers.find("initdb", servers.POSTGRES_DIRECTORIES).parent / "pg_dump")
        dump = subprocess.run([program, url], capture_output=True, text=True, check=True).stdout
    assert "scenario/canary" in dump
    assert not leaks(dump, KEY)
    assert leaks(dump, PLAIN)  # or it is not looked for as it should be


def test_broker_saw_neither(muster: Installation) -> None:
    messages = json.dumps(muster.client.call("taken", queue="canary.tap"))
    assert "execution_id" in messages
    assert not leaks(messages, KEY, PLAIN)
    if muster.backend.rabbit is not None:
        assert not _leaking_files(muster.backend.rabbit.directory, KEY, PLAIN)
    else:
        for file in muster.directory.glob("broker.db*"):
            assert not leaks(file.read_bytes(), KEY, PLAIN)


def test_no_file_has_the_key(muster: Installation) -> None:
    """Databases with their journals, logs, working directories, the ring."""
    assert (muster.directory / "keyring").exists()
    assert not _leaking_files(muster.directory, KEY)
    if muster.backend.postgres is not None:
        assert not _leaking_files(muster.backend.postgres.directory, KEY)


def test_no_log_has_either(muster: Installation) -> None:
    logs = list(muster.directory.glob("*.log"))
    assert len(logs) >= 4
    text = "\n".join(log.read_text(errors="replace") for log in logs)
    assert "given ***" in text  # by the action's logger and its prints
    assert not leaks(text, KEY, PLAIN)


def _leaking_files(folder: Path, *values: str) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and leaks(path.read_bytes(), *values):
                found.append(str(path))
    return found


# --- what is shown -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(muster: Installation) -> Iterator[str]:
    """The address of its API; who looks is an administrator."""
    muster.environment |= {
        "DJANGO_SUPERUSER_USERNAME": "ada",
        "DJANGO_SUPERUSER_PASSWORD": "a-long-passphrase",
        "DJANGO_SUPERUSER_EMAIL": "ada@example.org",
    }
    muster.command("createsuperuser", "--noinput")
    url = muster.serve()
    muster.ready()
    yield url
    muster.service("api").close()


def test_api_shows_neither(muster: Installation, api: str) -> None:
    token = muster.token("canary")
    with httpx.Client(base_url=f"{api}/api/v1", headers={"Authorization": f"Bearer {token}"},
                      timeout=60) as client:  # fmt: skip
        paths = [*_listed(client), "/keys", "/templates/scenario/leaks/1.0.0"]
        paths += [f"/actions/scenario.{name}" for name in ("leak", "leak_shell", "leak_process")]
        answers = {path: client.get(path) for path in paths}
        refused = [
            client.post("/executions", json={"action_ref": "scenario.leak", "parameters": wrong})
            for wrong in ({"token": [PLAIN]}, {"token": REFERENCE, "card": {"n": PLAIN}})
        ]
    assert len(answers) > 30
    assert {answer.status_code for answer in answers.values()} == {200}
    assert {answer.status_code for answer in refused} == {422}
    assert any("scenario/canary" in answer.text for answer in answers.values())
    leaking = [path for path, answer in answers.items() if leaks(answer.text, KEY, PLAIN)]
    assert not leaking
    assert not [answer.text for answer in refused if leaks(answer.text, KEY, PLAIN)]


def _listed(client: httpx.Client) -> Iterator[str]:
    """Every list, and everything in it."""
    for row in client.get("/executions?limit=500").json()["items"]:
        yield f"/executions/{row['id']}"
    for task in client.get("/tasks").json()["items"]:
        path = f"/tasks/{task['task_uuid']}"
        yield from (path, f"{path}/graph", f"{path}/audit", f"{path}/workflow_steps")
        for step in client.get(f"{path}/workflow_steps").json()["items"]:
            one = f"{path}/workflow_steps/{step['step_uuid']}"
            yield from (one, f"{one}/audit")
    for entry in client.get("/dlq").json()["items"]:
        yield f"/dlq/entry/{entry['dlq_entry_uuid']}"
    yield from ("/executions", "/tasks", "/dlq", "/dlq/investigation-queue", "/workers", "/actions")


def test_admin_shows_neither(muster: Installation, api: str) -> None:
    with httpx.Client(base_url=api, follow_redirects=True, timeout=60) as client:
        form = client.get("/admin/login/").text
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert match
        login = {"username": "ada", "password": "a-long-passphrase", "next": "/admin/"}
        client.post(
            "/admin/login/",
            data=login | {"csrfmiddlewaretoken": match[1]},
            headers={"Referer": f"{api}/admin/login/"},
        )
        pages = _crawled(client, "/admin/")
    assert len(pages) > 40
    assert any("scenario/canary" in text for text in pages.values())
    assert any("/execution/" in path and "***" in text for path, text in pages.items())
    assert not [path for path, text in pages.items() if leaks(text, KEY, PLAIN)]


def _crawled(client: httpx.Client, start: str) -> dict[str, str]:
    """All pages that links lead to, but for those that change something."""
    pages: dict[str, str] = {}
    waiting = [start]
    while waiting and len(pages) < PAGES_MOST:
        path = waiting.pop(0)
        if path in pages:
            continue
        answer = client.get(path)
        pages[path] = html.unescape(answer.text)
        for link in re.findall(r'href="([^"#]+)"', answer.text):
            target = urljoin(path, html.unescape(link)).partition("?")[0]
            wanted = target.startswith("/admin/") and target not in pages
            if wanted and not re.search(r"logout|jsi18n|password|autocomplete", target):
                waiting.append(target)
    return pages


def test_terminal_shows_neither(muster: Installation, api: str) -> None:
    task, entries = str(muster.played.task), muster.dlq_entries()  # type: ignore[attr-defined]
    asked = [
        ["execution", "list"],
        ["execution", "list", "--json"],
        ["task", "show", task],
        ["task", "show", task, "--json"],
        ["task", "audit", task],
        ["dlq", "list"],
        ["keys", "list"],
        ["keys", "list", "--json"],
        ["keys", "ring"],
        ["template", "show", "scenario/leaks/1.0.0"],
        ["template", "show", "scenario/leaks/1.0.0", "--json"],
    ]
    asked += [["task", "step", task, name] for name in ("tell", "do_not_fit", "fail", "raise")]
    for id in muster.played.ids[::5]:  # type: ignore[attr-defined]
        asked += [["execution", "show", str(id)], ["execution", "show", str(id), "--json"]]
    asked += [["dlq", "show", str(entry.dlq_entry_uuid)] for entry in entries]
    texts = muster.client.call("printed", commands=asked)
    said = dict(zip(map(" ".join, asked), texts, strict=True))
    assert "***" in said[f"task step {task} tell"]
    assert not [command for command, text in said.items() if leaks(text, KEY, PLAIN)]


def test_result_that_does_not_fit_is_told_without_a_character_of_it(muster: Installation) -> None:
    task = muster.client.call("task", id=muster.played.task)  # type: ignore[attr-defined]
    step = task.steps["do_not_fit"]
    assert step.state == "error"
    assert step.result is None
    assert "does not fit result_schema: /result" in step.error["message"]
    assert "found a value that is secret" in step.error["message"]
