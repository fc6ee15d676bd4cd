"""Code that is not on this host: what needs it never begins, and it is found when it has come."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.core import packs
from orchestrator.core.models import Worker
from tests.factories import NOW, make_worker
from tests.workers.helpers import call
from workers import runtimes
from workers.code import CodeWatch
from workers.runtimes import Outcome

NUMBERS = itertools.count(1)
APART = {"process": True}


@pytest.fixture
def pack_path(tmp_path: Path) -> Path:
    """The folder of a pack, whose name no other test imports."""
    path = tmp_path / f"pack_{next(NUMBERS)}"
    path.mkdir()
    return path


def run(folder: Path, entry_point: Any, runtime: str = "python", **values: Any) -> Outcome:
    if runtime == "python":
        entry_point = f"{folder.name}.{entry_point}"
    ref = f"{folder.name}.act"
    return runtimes.run(call(runtime, entry_point, pack_path=str(folder), action_ref=ref, **values))


def never_began(outcome: Outcome, *, missing: str) -> str:
    """What is said of an attempt that did not begin as this was missing."""
    assert (outcome.event, outcome.reason) == ("fail", "pack_unavailable")
    assert (outcome.result["missing"], outcome.result["failed_by"]) == (missing, "worker")
    message: str = outcome.result["message"]
    return message


# --- what never begins ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "entry_point", "options"),
    [
        ("python", "m:f", {}),
        ("python", "m:f", APART),
        ("shell", ["./run.sh"], {}),
        ("shell", ["true"], {}),
        ("node", ["run.js"], {}),
        ("container", ["true"], {"image": "debian"}),
    ],
)
def test_without_the_folder_nothing_of_the_pack_begins(
    pack_path: Path, runtime: str, entry_point: Any, options: Any
) -> None:
    pack_path.rmdir()
    outcome = run(pack_path, entry_point, runtime, options=options)
    assert never_began(outcome, missing=pack_path.name) == f"no such folder: {pack_path}"


@pytest.mark.parametrize("options", [{}, APART])
@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("nothing:f", "no such file: {folder}/nothing.py"),
        ("m.deeper:f", "no such file: {folder}/m/deeper.py"),
        ("m:g", "{folder}/m.py has no function 'g'"),
        ("m:NUMBER", "cannot be loaded: entry point {name}.m:NUMBER: {name}.m has no function"),
    ],
)
def test_without_its_module_or_function_an_action_does_not_begin(
    pack_path: Path, options: Any, entry_point: str, message: str
) -> None:
    (pack_path / "m.py").write_text("NUMBER = 1\ndef f():\n    return 1\n")
    outcome = run(pack_path, entry_point, options=options)
    said = never_began(outcome, missing=f"{pack_path.name}.act")
    assert said.startswith(message.format(folder=pack_path, name=pack_path.name))


def test_module_that_comes_with_another_package_is_missed_when_it_is_imported(
    pack_path: Path,
) -> None:
    asked = call("python", "no_such_wheel.tool:f", pack_path=str(pack_path), action_ref="maps.act")
    said = never_began(runtimes.run(asked), missing="maps.act")
    assert said.startswith(f"{packs.UNEXPLAINED}entry point no_such_wheel.tool:f: there is no mod")


@pytest.mark.parametrize(("runtime", "script"), [("shell", "./run.sh"), ("node", "run.js")])
def test_without_its_script_an_action_does_not_begin(
    pack_path: Path, runtime: str, script: str
) -> None:
    outcome = run(pack_path, [script], runtime)
    said = never_began(outcome, missing=f"{pack_path.name}.act")
    assert said == f"no such file: {pack_path / script}"


def test_command_that_the_host_lacks_is_no_part_of_the_pack(pack_path: Path) -> None:
    assert run(pack_path, ["no-such-command"], "shell").reason == "action_failed"
    assert run(pack_path, ["/no/such/command"], "shell").reason == "action_failed"


@pytest.mark.parametrize("options", [{}, APART])
@pytest.mark.parametrize(
    ("body", "exception"),
    [
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("from . import no_such_module\n", "ImportError"),
        ("raise ImportError('broken')\n", "ImportError"),
        ("def f():\n    import no_such_module\n", "ModuleNotFoundError"),
        ("def f(:\n", "SyntaxError"),
    ],
)
def test_what_the_actions_own_module_does_is_the_actions_affair(
    pack_path: Path, options: Any, body: str, exception: str
) -> None:
    (pack_path / "m.py").write_text(body)
    outcome = run(pack_path, "m:f", options=options)
    assert (outcome.reason, outcome.result["exception"]) == ("action_failed", exception)
    assert outcome.result["failed_by"] == "action"


# --- what came meanwhile -------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"options": APART}, {"isolation": "trusted"}])
def test_what_was_missing_is_found_as_soon_as_it_is_there(
    pack_path: Path, how: dict[str, Any]
) -> None:
    pack_path.rmdir()
    never_began(run(pack_path, "m:f", **how), missing=pack_path.name)
    pack_path.mkdir()
    never_began(run(pack_path, "m:f", **how), missing=f"{pack_path.name}.act")
    (pack_path / "m.py").write_text("def g():\n    return 1\n")
    never_began(run(pack_path, "m:f", **how), missing=f"{pack_path.name}.act")
    (pack_path / "__init__.py").write_text("WHOLE = True\n")
    (pack_path / "m.py").write_text(
        "from . import WHOLE\n\ndef f():\n    return {'whole': WHOLE}\n"
    )
    outcome = run(pack_path, "m:f", **how)
    assert outcome.event == "complete"
    assert outcome.result.get("result", outcome.result) == {"whole": True}


def test_what_is_in_memory_runs_on_while_the_folder_is_replaced(pack_path: Path) -> None:
    (pack_path / "m.py").write_text("def f():\n    return {}\n")
    assert run(pack_path, "m:f").event == "complete"
    pack_path.rename(pack_path.with_name("old"))
    assert run(pack_path, "m:f").event == "complete"


@pytest.mark.parametrize("options", [{}, APART])
def test_folder_may_be_a_link_to_another_name(pack_path: Path, options: Any) -> None:
    (pack_path / "m.py").write_text("def f():\n    return {}\n")
    pack_path.rename(pack_path.with_name("release-7"))
    pack_path.symlink_to(pack_path.with_name("release-7"))
    assert run(pack_path, "m:f", options=options).event == "complete"


# --- the worker looks again ----------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a look at this host finds missing."""
    missing: dict[str, str] = {}

    def missing_code(names: Any = None) -> dict[str, str]:
        return {
            name: why
            for name, why in missing.items()
            if names is None or name.partition(".")[0] in names
        }

    monkeypatch.setattr(packs, "missing_code", missing_code)
    return missing


def watch_of(worker: Worker) -> CodeWatch:
    agent: Any = SimpleNamespace(worker_id=worker.pk, incarnation=worker.incarnation)
    return CodeWatch(agent)


def known() -> dict[str, str]:
    missing: dict[str, str] = Worker.objects.get().missing_code
    return missing


@pytest.mark.usefixtures("database")
class TestCodeWatch:
    def test_worker_that_lacks_nothing_looks_at_nothing(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(packs, "missing_code", lambda *_: pytest.fail("it looked"))
        watch = watch_of(make_worker())
        watch.look()
        assert not watch.is_lacking

    def test_what_was_missing_at_the_start_is_found(self, host: dict[str, str]) -> None:
        host |= {"maps": "no such folder: /maps", "core.x": "no such file: /core/x.py"}
        watch = watch_of(make_worker(missing_code=dict(host)))
        assert watch.survey() == host
        watch.look()
        assert (known(), watch.is_lacking) == (host, True)
        del host["maps"]
        watch.look()
        assert (known(), watch.is_lacking) == ({"core.x": "no such file: /core/x.py"}, True)
        host.clear()
        watch.look()
        assert (known(), watch.is_lacking) == ({}, False)

    def test_folder_that_comes_in_parts_is_not_taken_for_the_whole(
        self, host: dict[str, str]
    ) -> None:
        watch = watch_of(make_worker(missing_code={"maps": "no such folder: /maps"}))
        host["maps.draw"] = "no such file: /maps/draw.py"
        watch.look()
        assert (known(), watch.is_lacking) == (host, True)
        host.clear()
        watch.look()
        assert known() == {}

    def test_what_cannot_be_seen_from_outside_is_tried_again_after_a_while(
        self, host: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        why = f"{packs.UNEXPLAINED}there is no module 'wheel'"
        watch = watch_of(make_worker(missing_code={"maps.draw": why}))
        clock = [100.0]
        monkeypatch.setattr("workers.code.time.monotonic", lambda: clock[0])
        for clock[0] in (100.0, 105.0, 399.0):
            watch.look()
            assert (list(known()), watch.is_lacking) == (["maps.draw"], True)
        clock[0] = 400.0
        watch.look()
        assert (known(), watch.is_lacking) == ({}, False)

    def test_row_of_another_life_is_none_of_its_business(self, host: dict[str, str]) -> None:
        worker = make_worker(missing_code={"maps": "no such folder: /maps"})
        watch = watch_of(worker)
        Worker.objects.update(incarnation=2, heartbeat_at=NOW)
        watch.look()
        assert known() == {"maps": "no such folder: /maps"}
