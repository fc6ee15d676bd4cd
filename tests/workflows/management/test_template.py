"""`manage.py template`: definitions are checked, installed, listed and shown."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

from orchestrator.workflows.models import TaskTemplate
from tests import commands
from tests.factories import make_action
from tests.workflows.laundry import DEFINITION, REF

pytestmark = pytest.mark.usefixtures("database", "sent")


run, document, refused = commands.of("template")
items = partial(commands.items, "template")


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_templates_are_checked_installed_listed_and_shown(tmp_path: Path) -> None:
    make_action()
    file = _written(tmp_path / "laundry.yaml", yaml.safe_dump(DEFINITION))
    assert "is valid, 2 steps" in run("validate", str(file))
    assert not TaskTemplate.objects.exists()
    assert "Install one" in run("list")
    assert run("install", str(tmp_path)) == f"{REF} created\n"
    assert run("install", str(file)) == f"{REF} unchanged\n"
    assert REF in run("list", "--namespace", "tests")
    assert "core.echo" in run("show", REF)
    assert document("show", REF)["definition"] == DEFINITION
    assert [each["name"] for each in items("list")] == ["laundry"]
    assert "its versions are 1.0.0" in refused("show", "tests/laundry/2.0.0")


def test_wrong_template_is_told_with_file_and_line_and_installs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_action()
    _written(tmp_path / "good.yaml", yaml.safe_dump(DEFINITION | {"name": "good"}))
    bad = _written(tmp_path / "bad.yaml", yaml.safe_dump(DEFINITION) + "colour: blue\n")
    line = len(bad.read_text().splitlines())
    for verb in ("validate", "install"):
        with pytest.raises(SystemExit) as ended:
            run(verb, str(tmp_path))
        assert ended.value.code == 1
        told = capsys.readouterr().err
        assert f"{bad}:{line}:1: " in told
        assert "1 problem; nothing was changed." in told
    assert not TaskTemplate.objects.exists()
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("template", "validate", str(bad), "--json", stdout=out)
    assert json.loads(out.getvalue())["problems"][0]["line"] == line
