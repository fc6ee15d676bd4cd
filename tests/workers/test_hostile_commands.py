"""What a command does to take more than its share ends it, with a reason of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tests.workers.helpers import BOMB, call, sh
from workers import processes, runtimes
from workers.runtimes import Call, keeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits need Linux")


def py(code: str, *arguments: str, **values) -> Call:
    return call("shell", [sys.executable, "-I", "-S", "-c", code, *arguments], **values)


@pytest.mark.parametrize("how", ["in one group", "setsid"])
def test_a_fork_bomb_is_ended_and_nothing_of_it_stays(how):
    asked = py(BOMB, how, limits={"processes": 20})
    started = time.monotonic()
    outcome = runtimes.run(asked)
    assert (outcome.event, outcome.reason) == ("fail", "process_limit_exceeded")
    assert outcome.result["message"] == (
        "It had more than 20 processes at once. That is its limit, `processes`; it was ended there."
    )
    assert time.monotonic() - started < 20
    assert processes.find(asked.execution_id) == []


def test_a_gigabyte_of_output_is_ended_and_fills_neither_memory_nor_disk():
    before = psutil.Process().memory_info().rss
    outcome = runtimes.run(sh("head -c 1000000000 /dev/zero", limits={"output_mb": 16}))
    assert (outcome.event, outcome.reason) == ("fail", "output_limit_exceeded")
    assert len(outcome.result["stdout"]) == 1_000
    assert outcome.result["stdout_truncated"]
    assert psutil.Process().memory_info().rss - before < 20_000_000


def test_output_without_end_is_ended_by_the_limit_of_the_installation(settings):
    settings.MUSTER = replace(settings.MUSTER, action_output_mb=1)
    assert runtimes.run(sh("yes")).reason == "output_limit_exceeded"


def test_memory_is_that_of_all_processes_together():
    code = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        break
mine = bytearray(os.urandom(1)) * 30_000_000
time.sleep(20)
"""
    outcome = runtimes.run(py(code, limits={"memory_mb": 100}))
    assert (outcome.event, outcome.reason) == ("fail", "memory_limit_exceeded")
    assert outcome.result["peak_memory_bytes"] > 100 * 1_048_576


def test_pages_that_processes_share_count_once():
    code = """
import os, time
shared = bytearray(os.urandom(1)) * 40_000_000
for _ in range(4):
    if os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
for _ in range(4):
    os.wait()
"""
    outcome = runtimes.run(py(code, limits={"memory_mb": 100}))
    assert outcome.event == "complete"


def test_four_gigabytes_are_ended_long_before():
    started = time.monotonic()
    outcome = runtimes.run(py("x = b'x' * (4 << 30)", limits={"memory_mb": 256}))
    assert outcome.reason == "memory_limit_exceeded"
    assert outcome.result["peak_memory_bytes"] < 2_000_000_000
    assert time.monotonic() - started < 20


def test_processor_time_is_limited():
    outcome = runtimes.run(sh("while :; do :; done", limits={"cpu_seconds": 1}))
    assert (outcome.event, outcome.reason) == ("fail", "cpu_limit_exceeded")
    assert outcome.result["signal"] == "SIGXCPU"


def test_a_file_that_grows_too_large_is_told():
    asked = sh("head -c 3000000 /dev/zero > file", limits={"file_size_mb": 1})
    assert runtimes.run(asked).reason == "file_size_limit_exceeded"


def test_the_kernel_holds_the_other_limits():
    limits = {"open_files": 32, "address_space_mb": 512}
    outcome = runtimes.run(sh("ulimit -n; ulimit -v", limits=limits))
    assert outcome.result["stdout"] == f"32\n{512 * 1024}\n"


def test_a_command_whose_keeper_it_kills_is_ended_with_all_it_started():
    asked = sh("setsid sleep 300 & kill -9 $PPID; sleep 300", timeout_seconds=300)
    outcome = runtimes.run(asked)
    assert (outcome.event, outcome.result["failed_by"]) == ("fail", "worker")
    assert "was killed" in outcome.result["message"]
    assert processes.find(asked.execution_id) == []


def test_what_a_worker_that_was_killed_left_ends_with_it_whatever_it_did_to_escape(tmp_path):
    pids = tmp_path / "pids"
    code = (
        "import django\ndjango.setup()\n"
        "from tests.workers.helpers import sh\nfrom workers import runtimes\n"
        f"runtimes.run(sh('cd /; env -i setsid sleep 60 & echo $! $$ > {pids}; sleep 60'))"
    )
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"), seconds=120)
    worker.kill()
    worker.wait()
    wait_until(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
def test_another_user_runs_it_who_can_write_its_directory_and_kill_nobody(settings):
    settings.MUSTER = replace(settings.MUSTER, action_user="nobody")
    asked = sh(
        "id -un; touch file && pwd; kill -9 $PPID 2>/dev/null || echo refused; "
        "grep processes /proc/self/limits"
    )
    outcome = runtimes.run(asked)
    user, work_dir, refused, _, _, most, *_ = outcome.result["stdout"].split()
    assert (user, refused) == ("nobody", "refused")
    assert int(most) >= keeper.HEADROOM_PROCESSES
    assert not Path(work_dir).exists()


def test_a_result_file_that_leads_elsewhere_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"secret": 1}')
    asked = sh(f'ln -s {secret} "$MSTR_RESULT_FILE"', options={"result": "file"})
    assert runtimes.run(asked).result["result"] is None


def test_the_result_is_the_file_that_the_environment_names():
    asked = sh("""echo '{"a": [1]}' > "$MSTR_RESULT_FILE"; echo x""", options={"result": "file"})
    assert runtimes.run(asked).result["result"] == {"a": [1]}


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("""echo log; echo '{"a": 1}'; echo""", {"a": 1}),
        ("head -c 3000000 /dev/zero; echo; echo 7", 7),
        ("true", None),
    ],
)
def test_the_result_is_the_last_line_of_stdout(script, result):
    outcome = runtimes.run(sh(script, options={"result": "last_line"}))
    assert outcome.result["result"] == result


@pytest.mark.parametrize("line", ["done", "NaN", "[" * 100_000])
def test_a_last_line_that_is_no_json_is_a_failure_that_shows_it(line):
    outcome = runtimes.run(call("shell", ["echo", line], options={"result": "last_line"}))
    assert outcome.event == "fail"
    assert "JSON" in outcome.result["message"]
