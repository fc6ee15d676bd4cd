"""Packs are upgraded under load: each execution runs the release of its acceptance, on hosts that
share no path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.scenarios.installation import REPOSITORY, Installation

N = 1_000

ACTION = """\
name: {name}
runtime: python
entry_point: wares.work:{function}
idempotent: true
{more}
parameters:
  type: object
  properties: {{n: {{type: integer}}, first: {{type: string}}}}
  {required}
"""
CODE = """\
import os

def version():
    return {version}

def say(**given):
    from wares import later  # imported while it runs: of the same release
    first = given.get("first")
    if first and not os.path.exists(first):
        open(first, "w").close()
        raise RuntimeError("the first attempt fails")
    return {{"version": version(), "later": later.VERSION, "file": __file__}}
"""


def write(muster: Installation, version: int, *, required: str = "") -> Path:
    folder = muster.directory / "source" / "wares"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text(f'name: wares\nversion: "{version}.0"\n')
    (folder / "work.py").write_text(CODE.format(version=version))
    (folder / "later.py").write_text(f"VERSION = {version}\n")
    (folder / "say.sh").write_text(f"#!/bin/sh\necho '{{\"version\": {version}}}'\n")
    (folder / "say.sh").chmod(0o755)
    say = ACTION.format(name="say", function="say", required=required, more="")
    own = ACTION.format(
        name="own", function="say", required=required, more="options: {process: true}"
    )
    (folder / "actions" / "say.yaml").write_text(say)
    (folder / "actions" / "own.yaml").write_text(own)
    (folder / "actions" / "script.yaml").write_text(
        "name: script\nruntime: shell\nentry_point: [./say.sh]\noptions: {result: last_line}\n"
    )
    return folder


def install_pack(muster: Installation, version: int, **how: str) -> str:
    """Install a version; returns the digest of its release."""
    muster.command("pack", "install", str(write(muster, version, **how)))
    shutil.rmtree(muster.directory / "source")  # nobody reads it any more
    (current, *_) = json.loads(muster.command("pack", "releases", "wares", "--json"))["items"]
    assert current["state"] == "installed"
    return str(current["digest"])


def start_workers(muster: Installation, **environment: str) -> list[Path]:
    """Two workers with directories of their own; returns where each keeps its releases."""
    homes = [muster.directory / name / "releases" for name in ("w1", "w2")]
    for name, home in zip(("w1", "w2"), homes, strict=True):
        muster.start_worker(name, concurrency=2, MUSTER_RELEASES_DIR=str(home), **environment)
    return homes


def version_of(row: Any) -> Any:
    result = row.result
    return result["version"] if "version" in result else result["result"]["version"]


@pytest.mark.slow
def test_each_of_a_thousand_queued_executions_runs_the_release_of_its_acceptance(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    one = install_pack(muster, 1)
    flags = muster.directory / "flags"
    flags.mkdir()

    def news(count: int, offset: int = 0) -> list[dict[str, Any]]:
        policy = {"max_attempts": 3, "backoff_base_ms": 10, "retry_on": ["action_failed"]}
        retried = {"retry": policy}
        return [
            {"parameters": {"n": n, "first": str(flags / f"{offset + n}")}, **retried}
            if n % 10 == 0
            else {"parameters": {"n": n}}
            for n in range(count)
        ]

    actions = {"wares.say": N - 60, "wares.own": 30, "wares.script": 30}
    before: list[UUID] = []
    for ref, count in actions.items():
        plain: list[dict[str, Any]] = [{} for _ in range(count)]
        before += muster.submit_many(plain if ref == "wares.script" else news(count), ref)

    began_at = time.monotonic()
    two = install_pack(muster, 2, required="required: [n]")
    measured("upgrade under 1,000 queued executions", time.monotonic() - began_at)
    time.sleep(1.1)  # what a process knows of an action is a second old at most
    after = muster.submit_many(news(200, N), "wares.say")

    homes = start_workers(muster)
    muster.ready()  # before somebody looks for one
    muster.start_executor()
    rows = {row.id: row for row in muster.wait_for_ends([*before, *after], within_seconds=300)}

    assert {(row.status, row.reason) for row in rows.values()} == {("completed", "succeeded")}
    assert {version_of(rows[id]) for id in before} == {1}
    assert {version_of(rows[id]) for id in after} == {2}
    later = {rows[id].result["later"] for id in before if "later" in rows[id].result}
    assert later == {1}
    retried = [row for row in rows.values() if row.retry_count]
    assert len(retried) >= 100, "the retries are part of it"
    assert len({row.worker_id for row in rows.values()}) == 2
    for home in homes:
        assert {one, two} <= {path.name for path in home.iterdir()}
    muster.check_accounts()


@pytest.mark.slow
def test_workers_that_run_a_pack_go_on_while_it_is_upgraded(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    install_pack(muster, 1)
    muster.start_executor()
    start_workers(muster)
    muster.ready()
    some: list[dict[str, Any]] = [{"parameters": {"n": n}} for n in range(100)]
    before = muster.submit_many(some, "wares.say")
    muster.wait_for_ends(before[:1])  # the others wait or run
    install_pack(muster, 2)
    time.sleep(1.1)  # what a process knows of an action is a second old at most
    after = muster.submit_many(some, "wares.say")
    rows = {row.id: row for row in muster.wait_for_ends([*before, *after], within_seconds=120)}
    assert {(row.status, row.reason) for row in rows.values()} == {("completed", "succeeded")}
    assert {version_of(rows[id]) for id in before} == {1}
    assert {version_of(rows[id]) for id in after} == {2}
    muster.check_accounts()


@pytest.mark.slow
def test_workers_of_one_host_fetch_at_once_and_share(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    digest = install_pack(muster, 1)
    home = muster.directory / "shared"
    for name in ("w1", "w2", "w3"):
        muster.start_worker(name, MUSTER_RELEASES_DIR=str(home))
    muster.start_executor()
    muster.ready()
    ids = muster.submit_many([{} for _ in range(60)], "wares.say")
    assert {version_of(row) for row in muster.wait_for_ends(ids)} == {1}
    assert [path.name for path in home.iterdir() if path.is_dir()] == [digest]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_what_was_changed_on_disk_or_in_the_store_is_not_run(install: Callable[..., Any]) -> None:
    muster: Installation = install(no_worker_grace_seconds=1)
    install_pack(muster, 1)
    home = start_workers(muster)[0]
    muster.start_executor()
    muster.ready()
    muster.wait_for(lambda: any(home.glob("*/wares/work.py")), "nothing was fetched")
    for name in ("w1", "w2"):
        muster.service(name).kill_tree()
    for file in muster.directory.glob("w?/releases/*/wares/work.py"):
        file.parent.chmod(0o700)
        file.chmod(0o600)
        file.write_text(file.read_text().replace("return 1", "return 666"))
    start_workers(muster)
    muster.ready()
    ids = muster.submit_many([{} for _ in range(20)], "wares.say")
    assert {version_of(row) for row in muster.wait_for_ends(ids)} == {1}

    muster.client.call("spoil_release")
    for name in ("w1", "w2"):
        muster.service(name).kill_tree()
        shutil.rmtree(muster.directory / name, ignore_errors=True)
    start_workers(muster)
    muster.ready()
    (row,) = muster.wait_for_ends(muster.submit_many([{}], "wares.say"), within_seconds=120)
    assert (row.status, row.reason) == ("failed", "no_worker_available")
    muster.command("pack", "install", str(write(muster, 1)))  # the same content repairs it
    muster.wait_for(
        lambda: not muster.worker("w1").missing_code and not muster.worker("w2").missing_code,
        "the workers do not notice that they have it",
    )
    ids = muster.submit_many([{} for _ in range(5)], "wares.say")
    assert {version_of(row) for row in muster.wait_for_ends(ids)} == {1}


@pytest.mark.slow
def test_an_installation_that_is_killed_changes_nothing_or_all(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    digests = {install_pack(muster, 1)}
    folder = write(muster, 2)
    (folder / "large.bin").write_bytes(os.urandom(20_000_000))
    for seconds in (0.6, 1.2, 1.8, 2.4, 3.0):
        process = subprocess.Popen(
            [sys.executable, "manage.py", "pack", "install", str(folder)],
            env=muster.environment,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds)
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in below:
            each.kill()
        process.wait()
        (pack,) = [
            each
            for each in json.loads(muster.command("pack", "list", "--json"))["items"]
            if each["name"] == "wares"
        ]
        releases = json.loads(muster.command("pack", "releases", "wares", "--json"))["items"]
        (installed,) = [each for each in releases if each["state"] == "installed"]
        assert (pack["version"], pack["release"]) == (installed["version"], installed["digest"])
        assert (pack["version"] == "1.0") == (pack["release"] in digests)
    muster.command("pack", "install", str(folder))
    assert "large.bin" not in muster.command("pack", "diff", str(folder))


@pytest.mark.slow
def test_a_pack_is_drained_while_its_executions_end(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    install_pack(muster, 1)
    ids = muster.submit_many([{} for _ in range(300)], "wares.say")
    with pytest.raises(subprocess.CalledProcessError):
        muster.command("pack", "remove", "wares")
    start_workers(muster)
    muster.ready()
    muster.start_executor()
    output = muster.command("pack", "remove", "wares", "--drain")
    assert "wares 1.0 is removed: 3 actions" in output
    rows = muster.wait_for_ends(ids)
    assert {(row.status, version_of(row)) for row in rows} == {("completed", 1)}
    assert json.loads(muster.command("execution", "show", str(ids[0]), "--json"))["action_ref"]
