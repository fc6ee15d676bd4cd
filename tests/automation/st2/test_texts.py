"""Commands of StackStorm: a value is one argument, in whatever quotes it stood."""

from __future__ import annotations

import subprocess
from functools import partial

import pytest

from orchestrator.automation.st2 import texts
from orchestrator.automation.st2.report import NotConvertible

HOSTILE = 'a b\'; echo "$HOME" `id` \\'


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {{x}}",
        'printf %s "{{ x }}"',
        "printf %s '{{x}}'",
        'printf %s "it\'s {{x}}"',
        "printf '%s' '\"'{{x}}",
        'printf %s "\\"{{x}}"',
        "printf %s \\'{{x}}",
        'printf %s "$(printf %s {{x}})"',
        "printf %s \"$(printf %s '{{x}}')\"",
        "(printf %s {{x}})",
        "printf '(' >&2; printf %s {{x}} 2>&1",
    ],
)
def test_value_is_never_read_by_the_shell(command: str) -> None:
    argv = texts.command(command, lambda expression: HOSTILE)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(HOSTILE)
    assert done.stderr in ("", "(")


def test_each_expression_is_an_argument_of_its_own() -> None:
    argv = texts.command("{{a}} '{{b}}' \"{{a}}\"", lambda expression: f"<{expression}>")
    script = '"${1}" \'\'"${2}"\'\' "${3}"'
    assert argv == ["sh", "-c", script, "sh", "<a>", "<b>", "<a>"]


def test_command_without_expressions_is_as_it_was() -> None:
    assert texts.command("date | wc", str) == ["sh", "-c", "date | wc"]


@pytest.mark.parametrize("command", ["echo `echo {{ x }}`", "cat <<END\n{{ x }}\nEND\n"])
def test_places_where_no_argument_can_stand_are_refused(command: str) -> None:
    with pytest.raises(NotConvertible, match="here-document"):
        texts.command(command, str)


@pytest.mark.parametrize(
    "command", ["{% if a %}x{% endif %}", "{# no #} x", "echo {{ a }} {% for b in c %}"]
)
def test_statements_are_refused(command: str) -> None:
    with pytest.raises(NotConvertible, match="statements"):
        texts.command(command, str)


@pytest.mark.parametrize(
    "text",
    [
        "{{ st2kv.system.token | decrypt_kv }}",
        "{{ system.user }}",
        "{{ trigger.body | from_json_string }}",
        "{{ trigger.items | map(attribute='x') | random }}",
        "{{ action_context.user }}",
        "{% if trigger.a %}b{% endif %}",
    ],
)
def test_expressions_of_another_meaning_are_refused(text: str) -> None:
    with pytest.raises(NotConvertible):
        texts.rule_text(text, str)


def test_names_of_the_payload_are_ours() -> None:
    renamed = {"executed_at": "fired_at", "schedule": ""}
    text = "{{ trigger.executed_at }} and {{trigger.executed_at_all}}"
    ours = "{{ trigger.fired_at }} and {{trigger.executed_at_all}}"
    here = partial(texts.with_names, renamed=renamed)
    assert texts.rule_text(text, here) == ours
    with pytest.raises(NotConvertible, match="no 'schedule'"):
        texts.rule_text("{{ trigger.schedule }}", here)
    with pytest.raises(NotConvertible, match="no 'schedule'"):
        texts.rule_text("{{ trigger['schedule'] }}", here)
