"""Python actions in processes of their own, and the environments of their packs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.packs import environments
from tests import users, wheels
from tests.workers.helpers import call, python
from workers import runtimes
from workers.runtimes import Outcome

OWN = {"process": True}
LONG = {"timeout_seconds": 300}
"""For what makes an environment, on a machine that does much else."""


class Pack:
    """A pack with one module, whose functions are called in processes of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def run(self, function: str, code: str = "", **values) -> Outcome:
        (self.path / "actions.py").write_text(code)
        values.setdefault("options", OWN)
        entry_point = f"{self.path.name}.actions:{function}"
        return runtimes.run(call("python", entry_point, pack_path=str(self.path), **values))


@pytest.fixture
def pack(tmp_path) -> Pack:
    return Pack(tmp_path / "own_pack")


@pytest.fixture
def data_dir(tmp_path, settings) -> Path:
    folder: Path = tmp_path / "data"
    settings.DATA_DIR = folder
    return folder


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="muster-place-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_what_the_function_returns_is_the_result_beside_what_it_cost(pack):
    code = "import os\ndef f(*, n):\n    print('hello')\n    return {'n': n, 'pid': os.getpid()}\n"
    outcome = pack.run("f", code, parameters={"n": [1]})
    assert outcome.event == "complete"
    result = outcome.result
    assert (result["result"]["n"], result["stdout"], result["exit_code"]) == ([1], "hello\n", 0)
    assert result["result"]["pid"] != os.getpid()
    assert result["peak_memory_bytes"] > 1_000_000


def test_an_exception_is_told_as_in_the_workers_own_process(pack):
    code = "def f():\n    raise ValueError('bad')\n"
    outcome = pack.run("f", code)
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")
    assert outcome.result["message"] == "ValueError: bad"
    assert outcome.result["exception"] == "ValueError"
    assert "actions.py" in outcome.result["traceback"]
    assert "python_runner" not in outcome.result["traceback"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return object()", "TypeError: Object of type object is not JSON serializable"),
        ("return float('nan')", "ValueError: Out of range float values are not JSON compliant"),
        ("import sys; sys.exit('enough')", "SystemExit: enough"),
        ("import os; os._exit(0)", "The action ended its process and returned nothing."),
        ("import os; os.abort()", "The command was killed by SIGABRT."),
    ],
)
def test_however_it_ends_it_is_told_why(pack, body, message):
    outcome = pack.run("f", f"def f():\n    {body}\n")
    assert outcome.event == "fail"
    assert outcome.result["message"].startswith(message)


def test_the_modules_of_muster_do_not_shadow_those_of_the_standard_library(pack):
    code = "import http.client\ndef f():\n    return http.client.__name__\n"
    assert pack.run("f", code).result["result"] == "http.client"


def test_memory_that_it_may_not_have_is_its_reason(pack):
    code = "def f():\n    return len(b'x' * (4 << 30))\n"
    outcome = pack.run("f", code, limits={"address_space_mb": 1024})
    assert (outcome.reason, outcome.result["exception"]) == (
        "memory_limit_exceeded",
        "MemoryError",
    )


def test_it_is_stopped_at_its_time_limit(pack):
    outcome = pack.run("f", "import time\ndef f():\n    time.sleep(60)\n", timeout_seconds=0.5)
    assert (outcome.event, outcome.reason) == ("time_out", "run_timeout")


def test_it_has_the_interpreter_and_the_variables_that_the_action_names(pack, tmp_path):
    program = tmp_path / "own-python"
    program.write_text(f'#!/bin/sh\nOWN=yes exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    code = "import os\ndef f():\n    return [os.environ.get('OWN'), os.environ.get('A')]\n"
    options = OWN | {"interpreter": str(program), "env": {"A": "1"}}
    assert pack.run("f", code, options=options).result["result"] == ["yes", "1"]


def test_an_interpreter_that_is_not_there_is_told_and_safe_to_try_elsewhere(pack):
    outcome = pack.run("f", options=OWN | {"interpreter": "python9.9"})
    assert (outcome.event, outcome.reason) == ("fail", "environment_failed")
    assert outcome.result["message"] == "There is no interpreter 'python9.9' on PATH."
    assert outcome.result["failed_by"] == "worker"


def test_actions_without_the_option_stay_in_the_workers_process():
    assert runtimes.run(python("give", parameters={"value": 1})).result == {"value": 1}
    assert runtimes.in_process("python", {})
    assert not runtimes.in_process("python", OWN)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pack_with_requirements_has_an_environment_made_once(pack, data_dir):
    wheel = wheels.make(pack.path)
    (pack.path / "requirements.txt").write_text(f"--no-index\n./{wheel.name}\n")
    code = "import own, sys\ndef f():\n    return [own.VALUE, sys.prefix]\n"
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(pack.run("f", code, **LONG)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    results = [outcome.result.get("result") for outcome in outcomes]
    (folder,) = [path for path in (data_dir / "environments").iterdir() if path.is_dir()]
    assert results == [["from the environment", str(folder)]] * 2
    made_at = (folder / environments.COMPLETE).stat().st_mtime
    assert pack.run("f", code).event == "complete"
    assert (folder / environments.COMPLETE).stat().st_mtime == made_at


@users.needs_root
@pytest.mark.slow
def test_what_makes_an_environment_runs_as_the_user_of_actions_who_cannot_change_it(place):
    pack = Pack(place / "own_pack")
    log, directory, program = (place / name for name in ("log", "environments", "own-python"))
    log.touch()
    log.chmod(0o666)
    program.write_text(f'#!/bin/sh\nid -u >> {log}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    (pack.path / "requirements.txt").write_text(f"--no-index\n./{wheels.make(pack.path).name}\n")
    code = (
        "import django, os, pwd\ndjango.setup()\nfrom pathlib import Path\n"
        "from orchestrator.core.packs import environments\n"
        f"print(environments.python_of(Path({str(pack.path)!r}), interpreter={str(program)!r}, "
        f"directory=Path({str(directory)!r}), timeout_seconds=300, "
        f"user=pwd.getpwnam({users.OTHER!r})))"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    argv = [*users.reachable(place), sys.executable, "-c", code]
    python = Path(subprocess.check_output(argv, env=environment, text=True, umask=0o077).strip())

    assert set(log.read_text().split()) == {str(users.uid())}
    folder = python.parents[1]
    made = [folder, *folder.rglob("*")]
    assert {path.lstat().st_uid for path in made} == {0}
    assert not [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert next(folder.rglob("own.py")).stat().st_mode & 0o004, "its users can read it"


def test_a_pack_with_requirements_needs_a_place_that_the_user_of_actions_can_reach(pack, settings):
    settings.MUSTER = replace(settings.MUSTER, action_user=users.OTHER)
    (pack.path / "requirements.txt").write_text("")
    outcome = pack.run("f")
    assert outcome.reason == "environment_failed"
    assert outcome.result["message"].startswith("MUSTER_ENVIRONMENTS_DIR is not set, and the user")


def test_an_environment_that_cannot_be_made_is_told_with_what_pip_said(pack, data_dir):
    (pack.path / "requirements.txt").write_text("./not_there\n")
    outcome = pack.run("f", **LONG)
    assert (outcome.event, outcome.reason) == ("fail", "environment_failed")
    assert outcome.result["message"].startswith("pip install ended with exit code 1: ")
    assert "not_there" in outcome.result["message"]
    assert not list((data_dir / "environments").glob(f"*/{environments.COMPLETE}"))


def test_an_environment_that_takes_too_long_ends_with_the_actions_time(pack, data_dir, tmp_path):
    (pack.path / "requirements.txt").write_text("")
    program = tmp_path / "slow-python"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    started = time.monotonic()
    outcome = pack.run("f", options=OWN | {"interpreter": str(program)}, timeout_seconds=0.5)
    assert outcome.reason == "environment_failed"
    assert "did not end within" in outcome.result["message"]
    assert time.monotonic() - started < 30


def test_pip_learns_nothing_of_the_workers_own(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("https_proxy", "http://proxy")
    passed_on = environments._environment()
    assert "DATABASE_URL" not in passed_on
    assert (passed_on["PIP_NO_INDEX"], passed_on["https_proxy"]) == ("1", "http://proxy")


def test_pip_builds_what_is_in_a_release_in_a_copy_of_it(pack, data_dir, monkeypatch):
    """As root it would write into the release, whatever its modes say."""
    (pack.path / "requirements.txt").write_text("lib/\n")
    (pack.path / "lib").mkdir()
    (pack.path / "lib" / "setup.py").write_text("")
    for path in (pack.path / "lib" / "setup.py", pack.path / "requirements.txt"):
        path.chmod(0o400)
    for path in (pack.path / "lib", pack.path):
        path.chmod(0o500)
    places: list[Path] = []

    def build(argv: list[str], folder: Path, _: object) -> None:
        if "pip" in argv:
            places.append(Path(argv[-1]).parent)
            (folder / "lib" / "build").mkdir()
            (folder / "lib" / "setup.py").write_text("")

    monkeypatch.setattr(environments, "_run", build)
    python = environments.python_of(pack.path, directory=data_dir, timeout_seconds=60)
    assert places == [Path(python).parents[1] / "pack"]
    assert sorted(path.name for path in pack.path.rglob("*")) == [
        "lib", "requirements.txt", "setup.py",
    ]  # fmt: skip
