"""Warm processes: used again and again, and ended with all that they started when something is
wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import servers
from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import hiding, processes, runtimes
from workers.runtimes import Call, Outcome, limits, warm, warm_process
from workers.runtimes.warm_process import MOST_PACKS, Kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux")

CODE = """
import ctypes, json, os, resource, signal, subprocess, sys, threading, time

calls = 0

def count():
    global calls
    calls += 1
    return {"pid": os.getpid(), "calls": calls}

def surroundings():
    return {"environment": dict(os.environ), "cwd": os.getcwd(), "files": os.listdir("."),
            "argv": sys.argv, "path": sys.path, "uid": os.getuid()}

def litter():
    open("file", "w").close()
    os.makedirs("folder/below")
    os.symlink("/", "link")
    os.chdir("/")

def leave(how, started):
    if how == "escape":
        script = "setsid sleep 60 & echo $! >> " + started
        subprocess.run(["env", "-i", "PATH=" + os.environ["PATH"], "setsid", "sh", "-c", script])
    elif how == "thread":
        begun = threading.Event()
        def stay():
            leave("group", started)
            begun.set()
            time.sleep(60)
        threading.Thread(target=stay, daemon=True).start()
        begun.wait()
    else:
        child = subprocess.Popen(["sleep", "60"], start_new_session=how == "session")
        open(started, "w").write(str(child.pid))
    return how

def die(signal_number):
    os.kill(os.getpid(), signal_number)
    time.sleep(10)

def end(code):
    os._exit(code)

def tidy(started, tidied):
    script = "trap 'sleep 0.3; touch %s; exit' TERM; touch %s; while :; do sleep 0.01; done"
    subprocess.Popen(["sh", "-c", script % (tidied, started)]).wait()  # run() would kill it

def deaf(started):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(started, "w").close()
    time.sleep(300)

def eat():
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1)) * 10_000_000)
        time.sleep(0.005)

def fork_many():
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    time.sleep(30)

def say(text, times=1):
    for _ in range(times):
        print(text)
    print("and this", file=sys.stderr)
    os.system("echo from a child")

def flood():
    while True:
        os.write(1, b"x" * 65536)

def answers():
    "The descriptor of the answers: the pipe that is neither of the standard streams."
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.write(fd, b"")
                if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                    yield fd
            except OSError:
                pass

def forge(written):
    for fd in answers():
        os.write(fd, bytes.fromhex(written))
    time.sleep(300)

def close_all():
    os.closerange(0, 200)
    time.sleep(300)

def late():
    (fd,) = answers()
    threading.Timer(0.2, os.write, (fd, b"late")).start()
    return "in time"

def big(parameter):
    return len(parameter)
"""


class Pack:
    def __init__(self, path: Path, name: str = "pack_of_functions") -> None:
        self.path = path / name
        self.path.mkdir()
        (self.path / "functions.py").write_text(CODE)

    def call(self, function: str, parameters: dict[str, Any] | None = None, **values: Any) -> Call:
        values = {"timeout_seconds": 60.0, "pack_path": str(self.path)} | values
        entry_point = f"{self.path.name}.functions:{function}"
        return call("python", entry_point, parameters=parameters or {}, **values)

    def run(self, function: str, /, **parameters: Any) -> Outcome:
        return runtimes.run(self.call(function, parameters))


@pytest.fixture
def pack(tmp_path: Path):
    # action users and others must reach it
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    yield Pack(tmp_path)
    warm_process.end_all()


def in_thread(asked: Call) -> tuple[threading.Thread, list[Outcome]]:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
    thread.start()
    return thread, outcomes


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def is_over(pid: int) -> bool:
    return not psutil.pid_exists(pid) or not servers.is_alive(psutil.Process(pid))


def test_process_is_used_again_and_modules_are_imported_once(pack):
    first, second = pack.run("count").result, pack.run("count").result
    assert second == {"pid": first["pid"], "calls": 2}
    assert first["pid"] != os.getpid()


def test_process_ends_after_its_last_call(pack, monkeypatch):
    monkeypatch.setattr(warm_process, "MOST_CALLS", 2)
    assert [pack.run("count").result["calls"] for _ in range(5)] == [1, 2, 1, 2, 1]


def test_each_pack_has_a_process_of_its_own_and_only_a_few_are_kept(pack, tmp_path):
    packs = [
        pack,
        *(Pack(tmp_path, f"other_{number}") for number in range(MOST_PACKS)),
    ]
    pids = [each.run("count").result["pid"] for each in packs]
    assert len(set(pids)) == len(packs)
    assert is_over(pids[0])
    assert [each.run("count").result["calls"] for each in packs[1:]] == [2] * MOST_PACKS


def test_each_thread_has_a_process_of_its_own(pack):
    mine = pack.run("count").result["pid"]
    thread, outcomes = in_thread(pack.call("count"))
    thread.join()
    assert outcomes[0].result["pid"] != mine


def test_environment_has_nothing_of_the_workers_own(pack, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://canary")
    monkeypatch.setenv("MUSTER_NAMESPACE", "canary")
    asked = pack.call("surroundings", options={"env": {"OWN": "yes"}})
    found = runtimes.run(asked).result
    environment = found["environment"]
    assert "canary" not in json.dumps(found)
    assert environment.keys() == {
        "PATH", "LANG", "HOME", "TMPDIR", "MSTR_PACK_PATH", "MSTR_WARM", "OWN",
        "MSTR_EXECUTION_ID", "MSTR_ATTEMPT", "MSTR_ACTION", "MSTR_RETRIES",
    }  # fmt: skip
    assert environment["MSTR_EXECUTION_ID"] == asked.execution_id
    assert found["cwd"] == environment["HOME"]
    assert "OWN" not in pack.run("surroundings").result["environment"]


def test_working_directory_is_emptied_and_gone_with_the_process(pack):
    assert pack.run("litter").event == "complete"
    found = pack.run("surroundings").result
    assert found["files"] == []
    assert pack.run("count").result["calls"] == 1
    warm_process.end_all()
    assert not Path(found["cwd"]).exists()
    assert Path("/tmp").exists()  # noqa: S108 - where the link led


@pytest.mark.parametrize("how", ["group", "thread", "session", "escape"])
def test_what_a_function_left_is_killed_and_a_daemon_fails_it(pack, tmp_path, how):
    started = tmp_path / "started"
    before = pack.run("count").result["pid"]
    outcome = pack.run("leave", how=how, started=str(started))
    assert outcome.reason == ("succeeded" if how in ("group", "thread") else "processes_left")
    assert is_over(pid_in(started))
    assert pack.run("count").result["pid"] != before


def test_daemon_that_is_as_it_should_be_is_killed_without_a_failure(pack, tmp_path):
    started = tmp_path / "started"
    parameters = {"how": "session", "started": str(started)}
    outcome = runtimes.run(pack.call("leave", parameters, options={"detached": "kill"}))
    assert outcome.result == {"value": "session"}
    assert is_over(pid_in(started))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_process_that_a_signal_ends_is_lost_and_the_next_call_has_another(pack, number):
    before = pack.run("count").result["pid"]
    outcome = pack.run("die", signal_number=int(number))
    assert (outcome.reason, outcome.result["failed_by"]) == ("process_lost", "worker")
    assert outcome.result["message"] == f"Its process was killed by {number.name}."
    assert pack.run("count").result["pid"] != before


def test_function_that_ends_its_process_has_failed(pack):
    outcome = pack.run("end", code=3)
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")
    assert outcome.result["message"] == (
        "The action ended its process, with exit code 3, and returned nothing."
    )


def test_killed_keeper_is_a_lost_process_and_nothing_of_it_stays(pack, tmp_path):
    asked = pack.call("deaf", {"started": str(tmp_path / "started")})
    thread, outcomes = in_thread(asked)
    wait_until((tmp_path / "started").exists)
    (process,) = warm_process._processes
    runner = int(process.report["command"])
    os.kill(process._keeper.pid, signal.SIGKILL)
    thread.join(60)
    assert outcomes[0].reason == "process_lost"
    assert "was killed" in outcomes[0].result["message"]
    assert is_over(runner)


def test_process_that_dies_while_it_waits_costs_nothing(pack):
    pid = pack.run("count").result["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_over(pid))
    assert pack.run("count").result["calls"] == 1


@pytest.mark.parametrize("stop", ["cancel", "time"])
def test_function_that_hears_nothing_is_killed_after_the_grace(pack, tmp_path, stop):
    started = tmp_path / "started"
    limit = 300.0 if stop == "cancel" else 5.0
    pack.run("count")  # there is a process, which need not be started within the limit
    asked = pack.call("deaf", {"started": str(started)}, timeout_seconds=limit)
    thread, outcomes = in_thread(asked)
    wait_until(started.exists)
    if stop == "cancel":
        assert warm.interrupt(limits.name_of(asked.execution_id, asked.attempt))
    thread.join(60)
    reason = "cancelled_running" if stop == "cancel" else "run_timeout"
    assert outcomes[0].reason == reason
    assert not warm.interrupt(limits.name_of(asked.execution_id, asked.attempt))


def test_processes_of_a_function_that_is_stopped_have_the_grace_too(pack, tmp_path):
    started, tidied = tmp_path / "started", tmp_path / "tidied"
    asked = pack.call(
        "tidy", {"started": str(started), "tidied": str(tidied)}, cancel_grace_seconds=50.0
    )
    thread, outcomes = in_thread(asked)
    wait_until(started.exists)
    assert warm.interrupt(limits.name_of(asked.execution_id, asked.attempt))
    thread.join(60)
    assert outcomes[0].reason == "cancelled_running"
    assert tidied.exists()
    assert outcomes[0].result["duration_seconds"] < 40


def test_cancel_before_there_is_a_process_counts(pack, monkeypatch):
    asked = pack.call("count")
    name = limits.name_of(asked.execution_id, asked.attempt)
    take = Kept.take
    monkeypatch.setattr(Kept, "take", lambda *given: (warm.interrupt(name), take(*given))[1])
    assert runtimes.run(asked).reason == "cancelled_running"


def test_memory_and_processes_are_those_of_the_installation(pack, settings):
    settings.MUSTER = replace(settings.MUSTER, action_memory_mb=150, action_processes=20)
    outcome = pack.run("eat")
    assert outcome.reason == "memory_limit_exceeded"
    assert outcome.result["message"].startswith("Its processes used more memory than 150 MiB.")
    assert pack.run("fork_many").reason == "process_limit_exceeded"
    assert pack.run("count").event == "complete"


def test_what_it_prints_is_written_to_the_workers_log_and_nothing_in_it_is_obeyed(pack, logged):
    outcome = pack.run("say", text="\x1b[2J\x07 hello")
    assert outcome.result == {"value": None}
    text = "".join(line["text"] + "\n" for line in logged("action wrote"))
    assert "\\x1b[2J\\x07 hello\n" in text
    assert "and this\n" in text
    assert "from a child\n" in text
    assert {line["action"] for line in logged("action wrote")} == {"test.action"}


@pytest.mark.parametrize("limit", [1_000, 4, 12, 20])
def test_secret_that_it_prints_is_masked_before_what_is_too_much_is_cut(
    pack, settings, logged, limit
):
    settings.MUSTER = replace(settings.MUSTER, output_limit_bytes=limit)
    asked = pack.call("say", {"text": f"is {SECRET} it"}, secrets=(SECRET,))
    with hiding.of(asked.secrets):
        assert runtimes.run(asked).event == "complete"
    text = "".join(line["text"] for line in logged("action wrote"))
    assert "is *** it" in text or limit < 1_000
    assert SECRET[:4] not in text


def test_flood_of_output_ends_it_and_little_of_that_is_kept(pack, settings, logged):
    settings.MUSTER = replace(settings.MUSTER, action_output_mb=2, output_limit_bytes=100_000)
    outcome = pack.run("flood")
    assert (outcome.event, outcome.reason) == ("fail", "output_limit_exceeded")
    assert sum(len(line["text"]) for line in logged("action wrote")) <= 100_000


SECRET = "sk_live_0123456789abcdef"
NOT_JSON = "00000003" + b"{x}".hex()
NO_ANSWER = "00000002" + b"[]".hex()
PICKLE = "80049526000000"
WITHOUT_END = "000fffff" + b"{".hex()
TOO_LONG = "ffffffff"


@pytest.mark.parametrize("written", [NOT_JSON, NO_ANSWER, PICKLE, TOO_LONG])
def test_forged_answer_fails_its_execution_and_no_other(pack, written):
    outcome = runtimes.run(pack.call("forge", {"written": written}, timeout_seconds=30.0))
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")
    assert "process" in outcome.result["message"]
    assert pack.run("count").event == "complete"


def test_answer_without_an_end_is_waited_for_until_the_time_limit(pack):
    pack.run("count")
    outcome = runtimes.run(pack.call("forge", {"written": WITHOUT_END}, timeout_seconds=1.0))
    assert outcome.reason == "run_timeout"


def test_process_that_closes_its_pipes_is_ended(pack):
    outcome = runtimes.run(pack.call("close_all", timeout_seconds=30.0))
    assert outcome.reason == "process_lost"
    assert pack.run("count").event == "complete"


def test_what_it_says_unasked_is_not_taken_for_the_next_answer(pack):
    assert pack.run("late").result == {"value": "in time"}
    time.sleep(0.5)
    assert pack.run("count").result["calls"] == 1


def test_large_parameters_go_through_the_pipe(pack):
    assert pack.run("big", parameter="ä" * 1_000_000).result == {"value": 1_000_000}


def test_idle_processes_take_hardly_any_time(pack):
    pack.run("count")
    (process,) = warm_process._processes
    family = [psutil.Process(process._keeper.pid), *psutil.Process(process._keeper.pid).children()]
    before = sum(sum(each.cpu_times()[:2]) for each in family)
    time.sleep(3)
    assert sum(sum(each.cpu_times()[:2]) for each in family) - before <= 0.06


def test_all_of_a_life_of_a_worker_are_found_and_killed(pack, monkeypatch):
    monkeypatch.setenv(processes.WORKER_TOKEN, "test.9.9")
    runner = pack.run("count").result["pid"]
    assert processes.kill_all("test.9.8") == 0
    assert processes.kill_all("test.9.9") == 2, "its keeper, too"
    assert is_over(runner)


@pytest.fixture
def logged(monkeypatch) -> Callable[[str], list[dict[str, Any]]]:
    """The entries of the log of `workers.runtimes.warm`, by their text."""
    entries: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def info(self, event: str, **fields: Any) -> None:
            entries.append((event, fields))

    monkeypatch.setattr(warm, "log", Log())
    return lambda wanted: [fields for event, fields in entries if event == wanted]
