"""`manage.py` itself: its help, and what it says to what it does not know."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from orchestrator.core.management import program
from settings import variables
from tests import commands
from tests.factories import make_action, make_execution, make_worker

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# --- help ----------------------------------------------------------------------------------------


def test_help_says_what_each_of_our_commands_does_and_names_those_of_django_apart() -> None:
    ours, _, djangos = program.Program(["manage.py"]).main_help_text().partition("Django:")
    assert "execution   Submit, list, show, watch and cancel executions." in ours
    assert "workers     List and show workers" in ours
    assert "showmigrations" not in ours
    assert "showmigrations," in djangos
    assert max(map(len, ours.splitlines())) <= 100


def test_help_of_a_command_begins_with_its_verbs_and_names_options_of_django_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program.Program(["manage.py", "help", "workers"]).execute()
    own, _, djangos = capsys.readouterr().out.partition("Django's options")
    assert "cordon" in own
    assert "--pythonpath" not in own
    assert "--pythonpath" in djangos


# --- what was meant ------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("execution lst", "'lst' is unknown, did you mean 'list'?"),
        ("execution list --staus failed", "'--staus', did you mean '--status'?"),
        ("execution list --staus=failed", "'--staus', did you mean '--status'?"),
        ("execution list --status faild", "'faild' is unknown, did you mean 'failed'?"),
        ("execution list --reason worker_lst", "did you mean 'worker_lost'"),
        ("execution list --status zzz", "expected one of requested, scheduling,"),
        ("execution list --action core.ecko", "did you mean 'core.echo'?"),
        ("execution submit core.ecko", "did you mean 'core.echo'?"),
        ("execution submit zzz", "see: manage.py pack list"),
        ("workers show warehose", "did you mean 'warehouse'?"),
        ("up --wrkers 2", "unknown argument '--wrkers', did you mean '--workers'"),
    ],
)
def test_error_offers_what_is_spelled_alike(arguments: str, told: str) -> None:
    make_action("core.echo")
    make_worker("warehouse")
    assert told in commands.refused(*arguments.split())


@pytest.mark.django_db
def test_list_without_a_match_does_not_say_that_there_is_nothing() -> None:
    make_execution()
    assert commands.printed("execution", "list", "--status", "failed") == "No execution matches.\n"


def test_unknown_option_is_shown_with_the_usage_of_its_verb() -> None:
    told = run("execution", "list", "--staus", "failed")
    assert told.returncode == 2
    assert told.stderr.startswith("usage: manage.py execution list ")


@pytest.mark.parametrize("format", ["json", "markdown", "table"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_command_whose_reader_is_gone_ends_without_a_word(format: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "manage.py", "topology", "show", "--format", format],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=120,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


# --- wrong settings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("MUSTER_WORKER_QUEUE_TTL_MS", "soon", "expected a whole number."),
        ("HTTP_THREADS", "many", "expected a whole number from 1 to 1000."),
        ("DATABASE_URL", "garbage", "this is not a URL; expected postgresql://"),
        ("BROKER_URL", "amqp://host:99999//", "the port is not a number from 1 to 65535; expected"),
        ("MUSTER_DATA_DIR", "/dev/null/var", "Not a directory."),
    ],
)
def test_wrong_setting_is_one_line(variable: str, text: str, told: str) -> None:
    done = run("execution", "list", DJANGO_SETTINGS_MODULE="settings.base", **{variable: text})
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Wrong setting: {variable}")
    assert told in line
    assert done.returncode == 1


@pytest.mark.parametrize(
    "command",
    [
        ("celery", "-A", "settings", "beat"),
        ("celery", "-A", "settings", "inspect", "ping"),
        ("uvicorn", "settings.asgi:application"),
    ],
    ids=" ".join,
)
def test_wrong_setting_is_one_line_of_other_programs(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings.base", "REDIS_URL": "redis://:s@/0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("Wrong setting: REDIS_URL='redis://...@/0': the host is missing; expect")
    assert done.returncode == 1


def test_wrong_setting_is_traced_if_asked_for() -> None:
    done = run("check", "--traceback", DJANGO_SETTINGS_MODULE="settings.base", DEBUG="perhaps")
    assert "Traceback (most recent call last)" in done.stderr
    assert "ImproperlyConfigured: DEBUG='perhaps': expected on or off." in done.stderr


@pytest.mark.parametrize(("text", "is_on"), [("on", True), ("True", True), ("0", False)])
def test_switch_is_on_or_off(text: str, is_on: bool) -> None:
    assert variables.switch({"DEBUG": text}, "DEBUG") is is_on
    assert variables.switch({}, "DEBUG") is False


def test_values_that_are_guessed_elsewhere_are_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="DEBUG='maybe': expected on or off"):
        variables.switch({"DEBUG": "maybe"}, "DEBUG")
    with pytest.raises(ImproperlyConfigured, match="LOG_LEVEL='LOUD': expected one of INFO, DEBUG"):
        variables.one_of({"LOG_LEVEL": "LOUD"}, "LOG_LEVEL", ("INFO", "DEBUG"))
    assert variables.one_of({}, "LOG_LEVEL", ("INFO", "DEBUG")) == "INFO"


# --- what else it writes -------------------------------------------------------------------------


def test_ctrl_c_while_it_is_loading_ends_it_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "manage.py"), run_name="__main__")
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "level", "is_shown"),
    [("execution", "INFO", False), ("execution", "DEBUG", True), ("executor", "INFO", True)],
)
def test_only_services_log_what_they_set_up_and_ask_for(
    monkeypatch: pytest.MonkeyPatch, command: str, level: str, is_shown: bool
) -> None:
    loggers = [logging.getLogger(name) for name in program.LOGGERS_OF_SERVICES]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.NOTSET)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    monkeypatch.setattr(logging.getLogger(), "level", logging.getLevelName(level))
    program.Program(["manage.py", command]).fetch_command(command)
    assert [logger.isEnabledFor(logging.INFO) for logger in loggers] == [is_shown] * 2
