"""Actions in Python: read from type hints, in a process of their own, with a place for each
problem."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core import packs
from orchestrator.core.packs import imported, source
from tests import users, wheels
from tests.core.packs.folder import Folder

CHARGE = '''\
from datetime import date
from typing import Annotated, Literal

from muster_client import action
from pydantic import BaseModel, Field


class Line(BaseModel):
    sku: str
    count: Annotated[int, Field(ge=1)] = 1


@action(idempotent=True, retry={"max_attempts": 3}, timeout_seconds=30)
def charge(
    *,
    lines: list[Line],
    currency: Literal["EUR", "CHF"],
    due: date | None = None,
    card: Annotated[str, Field(json_schema_extra={"secret": True})] = "",
) -> dict[str, int]:
    """Charge the lines
    of an order.

    More about it.
    """
    return {"lines": len(lines)}
'''


def decorated(signature: str, decorator: str = "@action") -> str:
    return f"from muster_client import action\n\n{decorator}\ndef charge{signature}: ...\n"


def write(folder: Folder, code: str) -> None:
    folder.write("work.py", code)


class TestDecorator:
    def test_name_schema_and_description_come_from_the_function(self, folder):
        write(folder, CHARGE)
        (action,) = folder.load().actions
        assert (action.ref, action.runtime) == ("net.charge", "python")
        assert action.entry_point == "net.work:charge"
        assert action.description == "Charge the lines of an order."
        assert (action.idempotent, action.timeout_seconds) == (True, 30)
        assert action.retry_policy == {"max_attempts": 3}
        schema = action.parameters_schema
        assert schema["required"] == ["lines", "currency"]
        assert schema["additionalProperties"] is False
        assert schema["properties"]["card"] == {"type": "string", "secret": True, "default": ""}
        assert schema["properties"]["currency"]["enum"] == ["EUR", "CHF"]
        assert schema["$defs"]["Line"]["properties"]["count"]["minimum"] == 1

    def test_parameters_are_checked_by_that_schema(self, folder):
        write(folder, CHARGE)
        schema = folder.load().actions[0].parameters_schema
        lines = [{"sku": "lamp", "count": 0}]
        value = {"lines": lines, "currency": "EUR", "due": "tomorrow"}
        found = {problem.pointer for problem in packs.validate_value(schema, value)}
        assert found == {"/lines/0/count", "/due"}
        value = {"lines": [{"sku": "lamp"}], "currency": "EUR", "due": "2026-01-02"}
        assert packs.validate_value(schema, value) == []

    @pytest.mark.parametrize(
        ("signature", "message"),
        [
            ("(amount)", "amount: expected a type hint, found none"),
            ("(*amounts: int)", "*amounts: parameters have names, so an action cannot take it"),
            ("(**more: int)", "**more: expected a name and a type hint for each parameter"),
            ("(a: int, /)", "a: parameters come by name, so a `/` cannot follow it"),
            ("(a: 'Missing')", "its type hints cannot be read: name 'Missing' is not defined"),
        ],
    )
    def test_parameter_that_has_no_schema_is_refused_with_its_place(
        self, folder, signature, message
    ):
        write(folder, decorated(signature))
        assert folder.problems() == [f"work.py:3:1: charge: {message}"]

    def test_type_without_a_json_schema_is_refused(self, folder):
        write(folder, "import threading\n" + decorated("(lock: threading.Event, n: int)"))
        (problem,) = folder.problems()
        assert problem.startswith(
            "work.py:4:1: charge: lock: expected a type that JSON Schema can describe, found Event"
        )

    def test_coroutine_is_refused(self, folder):
        write(folder, decorated("(n: int)").replace("def", "async def"))
        assert folder.problems() == ["work.py:3:1: charge: expected a function, found a coroutine"]

    def test_keys_of_the_decorator_are_checked_as_those_of_a_file(self, folder):
        write(folder, decorated("(n: int)", "@action(idempotnt=True, retry={'max_attempts': 0})"))
        assert folder.problems() == [
            "work.py:3:1: idempotnt: unknown key, did you mean 'idempotent'?",
            "work.py:3:1: retry.max_attempts: expected a whole number above 0, found 0",
        ]

    def test_what_the_function_says_cannot_be_said_twice(self, folder):
        write(folder, decorated("(n: int)", "@action(parameters={})"))
        assert "charge: parameters: expected none" in folder.problems()[0]

    def test_schema_is_checked_as_that_of_a_file(self, folder):
        hint = "Annotated[str, Field(pattern='(?=a)b')]"
        write(
            folder,
            "from typing import Annotated\nfrom pydantic import Field\n"
            + decorated(f"(code: {hint})"),
        )
        (problem,) = folder.problems()
        assert problem.startswith("work.py:5:1: charge: code: expected a type that JSON Schema can")
        assert "look-ahead" in problem

    def test_example_of_a_schema_is_checked_as_in_a_file(self, folder):
        extra = "{'type': 'strin'}"
        write(
            folder,
            "from typing import Annotated\nfrom pydantic import Field\n"
            + decorated(f"(code: Annotated[str, Field(json_schema_extra={extra})])"),
        )
        (problem,) = folder.problems()
        assert problem.startswith("work.py:5:1: parameters.properties.code.type: ")

    def test_name_of_a_file_and_of_a_function_is_an_error_with_both_places(self, folder):
        folder.action("charge", parameters={"properties": {"host": {}}, "required": ["host"]})
        write(folder, decorated("(n: int)"))
        (problem,) = folder.problems()
        assert problem == (
            "work.py:3:1: name: expected a name of its own, found 'charge', as in charge.yaml:4"
        )

    def test_decorated_function_of_another_module_is_not_taken_twice(self, folder):
        write(folder, CHARGE)
        folder.write("more.py", "from muster_client import action\nfrom net.work import charge\n")
        assert [action.ref for action in folder.load().actions] == ["net.charge"]

    def test_folder_that_python_cannot_import_is_refused(self, tmp_path):
        folder = Folder(tmp_path / "my-pack")
        write(folder, CHARGE)
        (problem,) = folder.problems()
        assert problem == "work.py: expected names that Python can import, found my-pack/work"

    def test_module_that_another_one_hides_is_refused(self, tmp_path):
        folder = Folder(tmp_path / "json")
        folder.write("decoder.py", CHARGE)
        assert "the module json.decoder is another file" in folder.problems()[0]


class TestProcess:
    def test_pack_without_actions_in_python_starts_no_process(self, folder, monkeypatch):
        folder.action()
        write(folder, "raise SystemExit\n")
        monkeypatch.setattr(imported, "_ask", None)
        assert len(folder.load().actions) == 1

    def test_module_that_cannot_be_imported_is_named_with_its_line(self, folder):
        write(folder, CHARGE + "\nimport no_such_module\n")
        assert folder.problems() == [
            "work.py:28:1: the module net.work cannot be imported: ModuleNotFoundError: "
            "No module named 'no_such_module'"
        ]

    def test_modules_are_imported_without_credentials_and_not_here(self, folder, monkeypatch):
        monkeypatch.setenv("DATABASE_URL", "postgres://secret")
        monkeypatch.setenv("MUSTER_SECRET", "secret")
        code = "import os, sys\nprint('noise')\nDOC = ' '.join(sorted(os.environ))\n"
        write(
            folder,
            decorated("(n: int)").replace("\n\n", f"\n{code}\n", 1) + "\ncharge.__doc__ = DOC"
            " + f' {os.getppid()} {\"django\" in sys.modules}'\n",
        )
        (action,) = folder.load().actions
        names, parent, has_django = action.description.rsplit(" ", 2)
        assert not {"DATABASE_URL", "MUSTER_SECRET"} & set(names.split())
        assert (int(parent), has_django) == (os.getpid(), "False")

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("import os; os._exit(3)", "the import ended with exit code 3"),
            ("raise SystemExit(4)", "cannot be imported: SystemExit: 4"),
        ],
    )
    def test_import_that_gives_no_answer_is_a_problem(self, folder, statement, message):
        write(folder, f"from muster_client import action\n{statement}\n")
        (problem,) = folder.problems()
        assert message in problem

    def test_import_that_does_not_end_is_a_problem(self, folder, monkeypatch):
        monkeypatch.setattr(imported, "TIMEOUT_SECONDS", 1)
        write(folder, "from muster_client import action\nimport time; time.sleep(60)\n")
        (problem,) = folder.problems()
        assert "the import did not end within 1 s" in problem

    def test_process_that_cannot_be_started_is_a_problem(self, folder, monkeypatch):
        write(folder, CHARGE)
        monkeypatch.setattr("sys.executable", "/nonexistent/python")
        (problem,) = folder.problems()
        assert "net.work: the process that imports cannot be started: " in problem

    def test_user_of_actions_who_does_not_exist_is_a_problem(self, folder, settings, monkeypatch):
        write(folder, CHARGE)
        settings.MUSTER = replace(settings.MUSTER, action_user="no-such-user")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        (problem,) = folder.problems()
        assert "net.work: MUSTER_ACTION_USER is no-such-user, and there is no such user" in problem

    @pytest.mark.parametrize(
        "answer",
        [
            {"actions": 1, "problems": [3], "notes": None},
            {"actions": [{"values": 3, "line": "x"}]},
            {"actions": [{"values": {"name": 1}, "file": 2, "line": []}]},
        ],
    )
    def test_answer_of_another_form_harms_nothing(self, folder, monkeypatch, answer: Any):
        write(folder, CHARGE)
        monkeypatch.setattr(imported, "_ask", lambda request, path: answer)
        found = imported.read(folder.path, source.read(folder.path / "pack.yaml"))
        assert all(isinstance(each.value, dict) for each in found.actions)
        assert found.problems == []


class TestCelery:
    def tasks(self, folder: Folder, code: str) -> None:
        folder.write("pack.yaml", 'name: net\nversion: "1"\ncelery_tasks: [net.tasks]\n')
        folder.write("tasks.py", f"from celery import shared_task\n\n{code}")

    def one(self, folder: Folder, options: str, body: str = "pass", self_: str = "") -> Any:
        code = f"@shared_task({options})\ndef work({self_}n: int):\n    {body}\n"
        self.tasks(folder, code)
        return folder.load()

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ("", {"retry_policy": {}, "idempotent": False, "timeout_seconds": None}),
            ("time_limit=30, soft_time_limit=20", {"timeout_seconds": 30}),
            ("acks_late=True", {"idempotent": True}),
            ("name='net.other'", {"ref": "net.other"}),
            ("name='other'", {"ref": "net.other"}),
            (
                "autoretry_for=(OSError,), max_retries=5",
                {
                    "retry_policy": {
                        "max_attempts": 6,
                        "backoff_base_ms": 180_000,
                        "max_backoff_ms": 180_000,
                        "jitter": 0,
                    }
                },
            ),
            (
                "autoretry_for=(OSError,), retry_backoff=2, retry_backoff_max=60",
                {
                    "retry_policy": {
                        "max_attempts": 4,
                        "backoff_base_ms": 2_000,
                        "max_backoff_ms": 60_000,
                        "jitter": 1.0,
                    }
                },
            ),
            (
                "autoretry_for=(OSError,), default_retry_delay=0, retry_jitter=False",
                {"retry_policy": {"max_attempts": 4, "backoff": "none"}},
            ),
            (
                "autoretry_for=(OSError,), retry_kwargs={'max_retries': 1, 'countdown': 5}",
                {
                    "retry_policy": {
                        "max_attempts": 2,
                        "backoff_base_ms": 5_000,
                        "max_backoff_ms": 5_000,
                        "jitter": 0,
                    }
                },
            ),
        ],
    )
    def test_option_is_mapped(self, folder, options, expected):
        (action,) = self.one(folder, options).actions
        assert {name: getattr(action, name) for name in expected} == expected

    @pytest.mark.parametrize(
        ("options", "name"),
        [
            ("ignore_result=True", "ignore_result"),
            ("track_started=True", "track_started"),
            ("priority=3", "priority"),
            ("queue='mail'", "queue"),
            ("throws=(OSError,)", "throws"),
            ("reject_on_worker_lost=True", "reject_on_worker_lost"),
        ],
    )
    def test_option_without_an_effect_is_noted(self, folder, options, name):
        (note,) = self.one(folder, options).notes
        assert f"work: {name}: ignored" in str(note)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("rate_limit='10/m'", "rate_limit: Muster has no limit of this kind"),
            ("expires=60", "expires: send `deadline_seconds`"),
            ("serializer='pickle'", "serializer: expected json, found pickle"),
            ("autoretry_for=(OSError,), max_retries=None", "max_retries: expected a number"),
        ],
    )
    def test_option_that_cannot_be_honoured_is_refused(self, folder, options, message):
        self.tasks(folder, f"@shared_task({options})\ndef work(n: int): ...\n")
        (problem,) = folder.problems()
        assert problem.startswith(f"tasks.py:3:1: work: {message}")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("self.update_state()", "self.update_state: expected one of name, request, retry"),
            ("self.request.hostname", "self.request.hostname: expected one of id, retries"),
            ("self.retry(args=(1,))", "self.retry(args=...): expected one of exc, countdown"),
            ("self.retry(queue='x')", "self.retry(queue=...): expected one of exc"),
        ],
    )
    def test_use_of_self_that_cannot_be_honoured_is_refused(self, folder, body, message):
        code = f"@shared_task(bind=True)\ndef work(self, n: int):\n    {body}\n"
        self.tasks(folder, code)
        (problem,) = folder.problems()
        assert problem.startswith(f"tasks.py:3:1: work: {message}")

    def test_bound_task_that_retries_itself_has_a_policy(self, folder):
        body = "raise self.retry(countdown=3)"
        (action,) = self.one(folder, "bind=True, max_retries=2", body, "self, ").actions
        assert action.retry_policy["max_attempts"] == 3
        assert [*action.parameters_schema["properties"]] == ["n"]

    def test_hook_of_a_base_class_is_refused(self, folder):
        self.tasks(
            folder,
            "from celery import Task\n\nclass Base(Task):\n    def on_failure(self, *a): ...\n\n"
            "@shared_task(base=Base)\ndef work(n: int): ...\n",
        )
        (problem,) = folder.problems()
        assert "work: Base.on_failure: nothing calls it in Muster" in problem

    def test_task_that_sends_others_is_noted_with_the_line(self, folder):
        (note,) = self.one(folder, "", "work.delay(n)").notes
        assert "line 5: .delay() sends to Celery's broker" in str(note)

    def test_parameter_without_a_hint_takes_any_value_and_is_noted(self, folder):
        self.tasks(folder, "@shared_task\ndef work(order, n: int = 1): ...\n")
        definition = folder.load()
        assert definition.actions[0].parameters_schema["properties"]["order"] == {}
        assert "work: order: has no type hint" in str(definition.notes[0])

    def test_module_without_tasks_is_refused(self, folder):
        self.tasks(folder, "")
        assert folder.problems() == ["tasks.py:1:1: expected Celery tasks, found none"]

    @pytest.mark.parametrize("listed", ["tasks", "[tasks]", "[3]"])
    def test_list_has_modules_in_packages(self, folder, listed):
        folder.write("pack.yaml", f'name: net\nversion: "1"\ncelery_tasks: {listed}\n')
        (problem,) = folder.problems()
        assert "celery_tasks: expected a list of modules in packages" in problem

    def test_module_that_is_missing_is_named_at_the_pack(self, folder):
        folder.write("pack.yaml", 'name: net\nversion: "1"\ncelery_tasks: [net.nothing]\n')
        (problem,) = folder.problems()
        assert problem.startswith("pack.yaml: the module net.nothing cannot be imported")


class TestRequirements:
    @pytest.fixture
    def own(self, folder: Folder, tmp_path: Path, settings: Any) -> Folder:
        """A pack with an environment, in which there is the module `own` alone."""
        settings.DATA_DIR = tmp_path / "data"
        folder.write("requirements.txt", f"--no-index\n./{wheels.make(folder.path).name}\n")
        return folder

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_a_pack_is_imported_with_what_it_requires_and_nothing_of_ours(self, own):
        write(own, "import own\n" + CHARGE.replace('"CHF"', "own.VALUE"))
        (action,) = own.load().actions
        currency = action.parameters_schema["properties"]["currency"]
        assert currency["enum"] == ["EUR", "from the environment"]
        for module in ("django", "structlog"):
            write(own, f"import {module}\n" + decorated("(n: int)"))
            (problem,) = own.problems()
            assert problem.startswith("work.py:1:1: the module net.work cannot be imported")
            assert f"No module named '{module}'" in problem

    @users.needs_root
    def test_an_environment_that_cannot_be_made_is_a_problem_of_its_file(self, own, settings):
        settings.MUSTER = replace(settings.MUSTER, action_user=users.OTHER)
        write(own, decorated("(n: int)"))
        (problem,) = own.problems()
        assert problem.startswith("requirements.txt: its environment: MUSTER_ENVIRONMENTS_DIR is")

    def test_a_pack_without_actions_in_python_needs_no_environment(self, own, tmp_path):
        own.action()
        assert [action.ref for action in own.load().actions] == ["net.ping"]
        assert not (tmp_path / "data").exists()
