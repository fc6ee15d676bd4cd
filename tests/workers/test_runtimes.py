"""However an action ends, it ends as an Outcome that can be stored."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import wait_until
from tests.workers.helpers import call, python, sh
from workers import processes, runtimes
from workers.isolated import results
from workers.runtimes import Call, Outcome, command, limits, work_dirs


@pytest.fixture(params=["main thread", "pool thread"])
def run(request):
    """Run a call where a prefork child would, and where a thread pool would."""
    return runtimes.run if request.param == "main thread" else run_in_thread


def run_in_thread(call: Call) -> Outcome:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(call)))
    thread.start()
    thread.join(timeout=100)
    return outcomes[0]


def test_calls_and_outcomes_can_be_sent_to_a_pool_child():
    asked = python("give", parameters={"value": 1})
    outcome = runtimes.run(asked)
    assert pickle.loads(pickle.dumps(asked)) == asked  # noqa: S301 - our own
    assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301 - our own


def test_an_unknown_runtime_is_a_failure_of_the_worker():
    outcome = runtimes.run(call("cobol", "x"))
    assert (outcome.event, outcome.result["failed_by"]) == ("fail", "worker")
    assert outcome.result["message"] == ("This worker has no runtime 'cobol'.")


class TestPython:
    isolation = "process"

    def python(self, function: str, **values: Any) -> Call:
        return python(function, isolation=self.isolation, **values)

    def test_a_dict_is_the_result(self, run):
        outcome = run(self.python("give", parameters={"value": {"a": 1}}))
        assert outcome == Outcome("complete", "succeeded", {"a": 1})

    @pytest.mark.parametrize("value", [None, 3, "x", [1, 2], True])
    def test_anything_else_becomes_the_value_of_a_result(self, value):
        outcome = runtimes.run(self.python("give", parameters={"value": value}))
        assert outcome.result == {"value": value}

    def test_an_exception_is_told_with_its_type_and_the_frames_of_the_action_only(self, run):
        result = run(self.python("raise_value_error")).result
        assert result["error"] == "The action failed"
        assert result["exception"] == "ValueError"
        assert result["failed_by"] == "action"
        assert "raise_value_error" in result["traceback"]
        assert "runtimes/python.py" not in result["traceback"]

    def test_what_cannot_be_stored_in_a_message_is_replaced(self):
        result = runtimes.run(self.python("raise_value_error")).result
        assert result["message"] == "ValueError: bad \ufffd value \ufffd"
        assert "\0" not in result["traceback"]

    @pytest.mark.parametrize(
        ("function", "exception"),
        [("leave", "SystemExit"), ("press_control_c", "KeyboardInterrupt")],
    )
    def test_an_action_cannot_end_its_worker(self, function, exception):
        outcome = runtimes.run(self.python(function))
        assert (outcome.event, outcome.result["exception"]) == ("fail", exception)

    def test_wrong_parameters_are_a_failure_of_the_action(self):
        result = runtimes.run(self.python("leave", parameters={"x": 1})).result
        assert (result["exception"], result["failed_by"]) == ("TypeError", "action")

    @pytest.mark.parametrize(
        ("entry_point", "message"),
        [
            ("nowhere.at_all:f", "there is no module 'nowhere'"),
            ("tests.workers.nowhere:f", "no such file: "),
            ("tests.workers.sample:nothing", "has no function 'nothing'"),
        ],
    )
    def test_an_entry_point_that_leads_nowhere_is_a_failure_of_the_worker(
        self, entry_point, message
    ):
        result = runtimes.run(call("python", entry_point, isolation=self.isolation)).result
        assert message in result["message"]
        assert (result["failed_by"], result["error"]) == (
            "worker",
            "The worker does not have the code of the pack",
        )

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("give_object", "must return JSON-serialisable data"),
            ("give_nan", "must return JSON-serialisable data"),
            ("give_nested", "nested too deeply"),
        ],
    )
    def test_a_result_that_is_not_json_is_a_failure_that_says_so(self, function, message):
        outcome = runtimes.run(self.python(function))
        assert outcome.event == "fail"
        assert message in outcome.result["message"]

    def test_a_result_above_one_mebibyte_is_a_failure_that_says_so(self):
        outcome = runtimes.run(self.python("give", parameters={"value": "x" * results.LIMIT_BYTES}))
        assert outcome.event == "fail"
        assert "returned 1,048,578 bytes of JSON; at most 1,048,576" in outcome.result["message"]

    def test_an_action_is_stopped_at_its_time_limit(self, run):
        outcome = run(self.python("spin", timeout_seconds=0.05))
        assert (outcome.event, outcome.reason) == ("time_out", "run_timeout")
        assert outcome.result["failed_by"] == "worker"

    def test_an_action_that_swallows_its_time_limit_is_stopped_again(self, run):
        outcome = run(self.python("spin_and_swallow_once", timeout_seconds=0.05))
        assert outcome.event == "time_out"

    def test_subprocesses_of_an_action_carry_the_markers_of_its_execution(self):
        asked = self.python("markers_of_subprocess")
        environment = runtimes.run(asked).result["value"]
        assert f"MSTR_EXECUTION_ID={asked.execution_id}" in environment
        assert processes.EXECUTION_ID not in os.environ

    def test_a_pack_is_importable_from_the_parent_of_its_folder(self, tmp_path):
        pack = tmp_path / "example_pack_of_a_user"
        pack.mkdir()
        (pack / "actions.py").write_text("def hello(*, name): return {'hello': name}\n")
        asked = call(
            "python",
            "example_pack_of_a_user.actions:hello",
            pack_path=str(pack),
            parameters={"name": "you"},
            isolation=self.isolation,
        )
        assert runtimes.run(asked).result == {"hello": "you"}


class TestTrustedPython(TestPython):
    isolation = "trusted"

    def test_the_child_of_an_action_that_forks_does_not_go_on_as_a_worker(self):
        # in a process of its own: forking one that has threads is what this must not do here
        code = (
            "import django\ndjango.setup()\n"
            "from tests.workers.helpers import python\nfrom workers import runtimes\n"
            "print(runtimes.run(python('fork', isolation='trusted')).result['message'])"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ran.stdout.splitlines() == ["RuntimeError: child exit code 1"]

    def test_an_action_in_a_thread_can_be_interrupted(self, tmp_path):
        started = tmp_path / "started"
        asked = self.python("spin", parameters={"started": str(started)})
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
        thread.start()
        wait_until(started.exists)
        assert limits.interrupt(limits.name_of(asked.execution_id, asked.attempt))
        thread.join(timeout=60)
        assert (outcomes[0].event, outcomes[0].reason) == ("fail", "cancelled_running")
        assert not limits.interrupt(limits.name_of(asked.execution_id, asked.attempt))

    def test_a_time_limit_does_not_outlive_its_action(self):
        def one() -> None:
            has_begun = False
            try:
                with limits.limit("x", timeout_seconds=0.002, again_seconds=0.1):
                    try:
                        has_begun = True
                        for _ in range(1_000_000):
                            pass
                    except limits.TimeLimitReached:
                        pass
            except limits.TimeLimitReached:
                if has_begun:  # on a busy machine the limit is reached before the body begins
                    raise

        def many() -> None:
            for _ in range(300):
                one()
                survived.append(True)

        survived: list[bool] = []
        thread = threading.Thread(target=many)
        thread.start()
        thread.join(timeout=100)
        assert len(survived) == 300


class TestResults:
    @pytest.mark.parametrize(
        ("value", "stored"),
        [
            ("a\0b", "a\ufffdb"),
            ("\0\0", "\ufffd\ufffd"),
            ("\\u0000", "\\u0000"),
            ("\\\0", "\\\ufffd"),
            ("\ud83d\ude00", "😀"),
            ("\ud83d", "\ufffd"),
            ({"k\0": ("t",)}, {"k\ufffd": ["t"]}),
            ({1: None}, {"1": None}),
        ],
    )
    def test_what_jsonb_cannot_hold_is_replaced_and_the_rest_kept(self, value, stored):
        assert results.storable(value) == stored
        # the same from another process, as bytes and as escapes; surrogates in pairs are foreign
        for written in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
            assert results.from_json(written.encode("utf-8", "surrogatepass")) == stored

    @pytest.mark.parametrize(
        "value", [float("inf"), {1, 2}, b"x", [10**5000]], ids=["infinity", "set", "bytes", "huge"]
    )
    def test_what_has_no_json_is_refused(self, value):
        with pytest.raises(results.NotStorable):
            results.storable(value)

    @pytest.mark.parametrize("written", [b"[NaN]", b"-Infinity", b"1e999", b"{", b"[" * 5_000])
    def test_what_a_process_wrote_and_no_column_can_hold_is_refused(self, written):
        with pytest.raises(results.NotStorable):
            results.from_json(written)

    def test_what_a_process_wrote_may_be_no_longer_than_the_limit(self):
        written = json.dumps("x" * 98).encode()
        assert results.from_json(written, limit_bytes=100) == "x" * 98
        with pytest.raises(results.NotStorable, match="at most 99"):
            results.from_json(written, limit_bytes=99)


class TestShell:
    def test_exit_code_0_completes_with_both_outputs(self, run):
        outcome = run(sh("echo out; echo err >&2"))
        assert outcome.event == "complete"
        assert outcome.result.pop("duration_seconds") >= 0
        assert 100_000 < outcome.result.pop("peak_memory_bytes") < 100_000_000
        assert outcome.result == {
            "exit_code": 0,
            "stdout": "out\n",
            "stdout_truncated": False,
            "stderr": "err\n",
            "stderr_truncated": False,
        }

    def test_any_other_exit_code_fails(self):
        outcome = runtimes.run(sh("echo why >&2; exit 3"))
        assert (outcome.event, outcome.reason) == ("fail", "action_failed")
        assert outcome.result["exit_code"] == 3
        assert outcome.result["stderr"] == "why\n"
        assert outcome.result["message"] == "The command ended with exit code 3."

    def test_a_signal_is_told_by_its_name(self):
        result = runtimes.run(sh("kill -SEGV $$")).result
        assert (result["exit_code"], result["signal"]) == (None, "SIGSEGV")
        assert result["message"] == "The command was killed by SIGSEGV."

    def test_parameters_come_as_json_on_stdin(self):
        parameters = {"a": [1, "ü"], "b": None}
        outcome = runtimes.run(sh("cat", parameters=parameters))
        assert json.loads(outcome.result["stdout"]) == parameters

    def test_a_parameter_becomes_one_argument_whatever_is_in_it(self):
        value = "a b; $(touch /tmp/x) `id` 'q' \"p\" *"
        asked = call("shell", ["printf", "%s|", "{v}", "x={v}"], parameters={"v": value})
        assert runtimes.run(asked).result["stdout"] == f"{value}|x={value}|"

    def test_a_list_becomes_an_argument_an_element(self):
        asked = call("shell", ["{argv}"], parameters={"argv": ["printf", "[%s]", "a b", ""]})
        assert runtimes.run(asked).result["stdout"] == "[a b][]"

    @pytest.mark.parametrize(
        ("value", "message"),
        [(["a", None], "Parameter 'v' has null at index 1"), (None, "Parameter 'v' is null")],
    )
    def test_null_that_is_given_is_named_as_such(self, value, message):
        outcome = runtimes.run(call("shell", ["echo", "{v}"], parameters={"v": value}))
        assert outcome.result["message"].startswith(message)

    def test_other_braces_are_literal(self):
        asked = call("shell", ["printf", "%s|", "{print $1}", "{{v}}", "{n}"], parameters={"n": 5})
        assert runtimes.run(asked).result["stdout"] == "{print $1}|{v}|5|"

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({}, "Parameter 'v' is not given"),
            ({"v": None}, "Parameter 'v' is null"),
            ({"v": ["a"]}, "Parameter 'v' is a list"),
            ({"v": "a\0b"}, "Parameter 'v' contains a NUL character"),
        ],
    )
    def test_a_parameter_that_fits_no_argument_is_a_failure_that_names_it(
        self, parameters, message
    ):
        outcome = runtimes.run(call("shell", ["echo", "x{v}"], parameters=parameters))
        assert outcome.event == "fail"
        assert outcome.result["message"].startswith(message)

    def test_the_environment_has_nothing_of_the_workers_own(self, monkeypatch):
        monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
        asked = sh("env")
        lines = runtimes.run(asked).result["stdout"].splitlines()
        names = {line.split("=")[0] for line in lines} - {"PWD", "SHLVL", "_", "OLDPWD"}
        assert names == {
            "PATH", "LANG", "HOME", "TMPDIR", "MSTR_PACK_PATH",
            "MSTR_EXECUTION_ID", "MSTR_ATTEMPT", "MSTR_ACTION", "MSTR_RETRIES", "MSTR_RESULT_FILE",
        }  # fmt: skip
        assert f"MSTR_EXECUTION_ID={asked.execution_id}" in lines

    def test_the_working_directory_is_empty_at_first_and_gone_afterwards(self):
        asked = sh('ls -A; pwd; echo "$HOME"; mkdir -p a/b; chmod 0 a')
        first, home = runtimes.run(asked).result["stdout"].split()
        assert first == home
        assert not Path(first).exists()
        assert list(Path(tempfile.gettempdir()).glob(f"*{asked.execution_id}*")) == []

    def test_the_working_directory_of_a_worker_that_was_killed_is_removed_by_the_next(
        self, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        left, fresh, other = (
            tmp_path / name for name in ("muster-attempt-e1-1-x", "muster-attempt-e2-1-x", "other")
        )
        for path in (left, fresh, other):
            path.mkdir()
        for path in (left, other):
            os.utime(path, (0, 0))
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        asked = sh(f"touch -d @0 .; read line < {fifo}")
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
        thread.start()
        # in use, and as old as the one that is left
        prefix = processes.work_dir_prefix(asked.execution_id)
        wait_until(lambda: [p for p in tmp_path.glob(f"{prefix}*") if p.stat().st_mtime == 0])
        assert work_dirs.remove_left() == 1
        fifo.write_text("go\n")
        thread.join(timeout=60)
        assert outcomes[0].event == "complete"
        assert (left.exists(), fresh.exists(), other.exists()) == (False, True, True)

    @pytest.mark.parametrize(
        ("content", "mode", "message"),
        [
            (None, 0, "Command not found: "),
            ("#!/bin/sh\n", 0o644, "Command is not executable: "),
            ("#!/no/such/interpreter\n", 0o755, "The interpreter that the first line of "),
            ("no first line\n", 0o755, "Command is neither a program nor a script "),
        ],
    )
    def test_a_command_that_cannot_be_executed_is_told_why(self, tmp_path, content, mode, message):
        command = tmp_path / "command"
        if content is not None:
            command.write_text(content)
            command.chmod(mode)
        outcome = runtimes.run(call("shell", [str(command)]))
        assert outcome.event == "fail"
        assert outcome.result["message"].startswith(message)

    def test_a_script_of_the_pack_is_found_in_its_folder(self, tmp_path):
        (tmp_path / "hello.sh").write_text("#!/bin/sh\necho hello\n")
        (tmp_path / "hello.sh").chmod(0o755)
        outcome = runtimes.run(call("shell", ["./hello.sh"], pack_path=str(tmp_path)))
        assert outcome.result["stdout"] == "hello\n"

    def test_a_worker_that_cannot_make_a_directory_says_so(self, monkeypatch, tmp_path):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        result = runtimes.run(sh("true")).result
        assert result["message"].startswith("The worker could not run the command: ")
        assert result["failed_by"] == "worker"

    def test_a_hundred_megabytes_of_output_are_taken_and_not_kept(self):
        before = psutil.Process().memory_info().rss
        outcome = runtimes.run(sh("head -c 100000000 /dev/zero; echo end >&2"))
        assert outcome.event == "complete"
        assert outcome.result["stdout"] == "\ufffd" * 1_000
        assert outcome.result["stdout_truncated"]
        assert outcome.result["stderr"] == "end\n"
        assert not outcome.result["stderr_truncated"]
        assert psutil.Process().memory_info().rss - before < 20_000_000

    def test_output_that_is_not_utf_8_is_replaced(self):
        outcome = runtimes.run(sh(r"printf 'a\377b\000c'"))
        assert outcome.result["stdout"] == "a\ufffdb\ufffdc"

    def test_a_command_is_stopped_at_its_time_limit_and_may_clean_up(self, run):
        script = "trap 'echo bye; exit 7' TERM; echo on; while :; do sleep 0.01; done"
        outcome = run(sh(script, timeout_seconds=3, cancel_grace_seconds=20))
        assert (outcome.event, outcome.reason) == ("time_out", "run_timeout")
        assert outcome.result["stdout"] == "on\nbye\n"
        assert outcome.result["exit_code"] == 7
        assert outcome.result["duration_seconds"] < 3 + 20

    def test_a_grandchild_that_ignores_sigterm_is_killed_after_the_grace(self):
        script = "(trap '' TERM; while :; do sleep 0.01; done) & echo $!; wait"
        outcome = runtimes.run(sh(script, timeout_seconds=3))
        assert outcome.event == "time_out"
        assert _is_over(int(outcome.result["stdout"]))

    def test_a_command_that_clears_its_environment_is_stopped_all_the_same(self):
        asked = call("shell", ["env", "-i", "/bin/sleep", "60"], timeout_seconds=1)
        outcome = runtimes.run(asked)
        assert (outcome.event, outcome.result["signal"]) == ("time_out", "SIGTERM")

    def test_a_grandchild_that_keeps_the_pipes_open_holds_nobody_up(self):
        outcome = runtimes.run(sh("sleep 600 & echo $!"))
        assert outcome.event == "complete"
        pid = int(outcome.result["stdout"])
        wait_until(lambda: _is_over(pid))

    @pytest.mark.parametrize("detached", ["fail", "kill"])
    def test_a_daemon_ends_with_its_command_whatever_it_did_to_escape(self, detached, tmp_path):
        pids = tmp_path / "pids"
        escape = f"setsid sleep 60 & echo $! $$ > {pids}; exec sleep 60"
        script = (
            f'(cd /; exec env -i "PATH=$PATH" setsid sh -c "$0" </dev/null) & '
            f"until [ -s {pids} ]; do sleep 0.01; done; echo on"
        )
        entry_point = ["sh", "-c", script, escape]
        outcome = runtimes.run(call("shell", entry_point, options={"detached": detached}))
        assert outcome.result["stdout"] == "on\n"
        assert outcome.result["left_processes"] == 2
        assert outcome.reason == ("processes_left" if detached == "fail" else "succeeded")
        assert all(_is_over(int(pid)) for pid in pids.read_text().split())

    def test_signals_have_their_defaults_in_a_command(self):
        outcome = runtimes.run(sh("grep -E 'SigIgn|SigBlk' /proc/self/status"))
        masks = [int(line.split()[1], 16) for line in outcome.result["stdout"].splitlines()]
        # 32 and 33 are glibc's own: it blocks them at times, and lets no program say otherwise
        assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's death")
    def test_a_command_dies_with_the_process_of_its_worker(self):
        code = (
            "import django\ndjango.setup()\n"
            "from tests.workers.helpers import sh\nfrom workers import runtimes\n"
            "runtimes.run(sh('echo $$ >&3; exec sleep 60'.replace('>&3', '> ' + {path!r})))"
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pid"
            worker = subprocess.Popen([sys.executable, "-c", code.format(path=str(path))])
            wait_until(lambda: path.exists() and path.read_text().endswith("\n"), seconds=120)
            pid = int(path.read_text())
            worker.kill()
            worker.wait()
            wait_until(lambda: _is_over(pid))

    def test_an_interrupted_worker_leaves_nothing_behind(self, monkeypatch):
        class Stop(BaseException):
            pass

        def stop(*_: object) -> None:
            raise Stop

        asked = sh("sleep 60")
        monkeypatch.setattr(command, "_take", stop)
        with pytest.raises(Stop):
            runtimes.run(asked)
        assert processes.find(asked.execution_id) == []


def _is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
