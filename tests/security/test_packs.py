"""Packs that would hang, fill or mislead whoever reads them are refused, with file and line."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from django.core.management import CommandError

from orchestrator.core.models import Action, Pack
from orchestrator.core.packs.source import read
from tests import commands
from tests.core.packs.folder import PING, Folder
from tests.factories import NOW


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "net").mkdir()
    return Folder(tmp_path / "net")


class TestFilesThatAreNone:
    def test_pipe_is_not_waited_for(self, folder):
        os.mkfifo(folder.path / "pack-pipe")
        (folder.path / "actions").mkdir()
        os.mkfifo(folder.path / "actions" / "ping.yaml")
        began_at = time.monotonic()
        assert folder.problems() == [
            "actions/ping.yaml: expected a file, found a folder, a device or a pipe"
        ]
        assert time.monotonic() - began_at < 20

    @pytest.mark.parametrize("device", ["/dev/zero", "/dev/stdin", "/proc/self/environ"])
    def test_link_out_of_the_pack_is_not_followed(self, folder, device):
        (folder.path / "actions").mkdir()
        (folder.path / "actions" / "ping.yaml").symlink_to(device)
        (problem,) = folder.problems()
        assert "expected a file in the pack's folder, found a link that leaves it" in problem

    def test_nothing_of_the_file_behind_a_link_is_quoted(self, folder, tmp_path):
        (tmp_path / "secret").write_text("- hunter2\n")
        (folder.path / "pack.yaml").unlink()
        (folder.path / "pack.yaml").symlink_to(tmp_path / "secret")
        assert "hunter2" not in "".join(folder.problems())

    def test_link_inside_of_the_pack_is_followed(self, folder):
        """As a volume of Kubernetes has it."""
        folder.write("..data/ping.yaml", PING)
        (folder.path / "actions").mkdir()
        (folder.path / "actions" / "ping.yaml").symlink_to("../..data/ping.yaml")
        assert [action.ref for action in folder.load().actions] == ["net.ping"]

    def test_links_in_a_circle_are_refused(self, folder):
        (folder.path / "actions").mkdir()
        (folder.path / "actions" / "a.yaml").symlink_to("b.yaml")
        (folder.path / "actions" / "b.yaml").symlink_to("a.yaml")
        assert all("cannot be read" in problem for problem in folder.problems())

    def test_device_itself_is_refused(self):
        source = read(Path("/dev/zero"))
        assert source.value is None
        assert "expected a file" in str(source.problems[0])

    def test_file_of_endless_size_is_not_read(self, folder):
        with (folder.path / "pack.yaml").open("ab") as file:
            file.truncate(1 << 40)  # takes no room on the disk
        assert folder.problems() == ["pack.yaml: expected at most 1,048,576 bytes, found more"]


class TestValues:
    @pytest.mark.parametrize(
        ("number", "line"),
        [
            ("0x" + "f" * 5_000, 6),
            ("9" * 5_000, 6),
            ("1" + ":59" * 20_000, 6),
            ("-0b" + "1" * 5_000, 6),
            ("1." + "0" * 5_000, 6),
        ],
    )
    def test_number_of_thousands_of_digits_is_refused_by_its_line(self, folder, number, line):
        folder.write("actions/ping.yaml", PING.replace("required", f"max: {number}\n  required"))
        began_at = time.process_time()
        problems = [problem for problem in folder.problems() if "300 digits" in problem]
        assert len(problems) == 1
        assert problems[0].startswith("actions/ping.yaml:7:")
        assert len(problems[0]) < 250
        assert time.process_time() - began_at < 2

    def test_aliases_of_a_long_text_count_each_time(self, folder):
        text = "a" * 100_000
        aliases = "".join(f"  d{n}: *long\n" for n in range(200))
        folder.write("actions/ping.yaml", PING + f"options:\n  first: &long {text}\n{aliases}")
        (problem,) = (p for p in folder.problems() if "not YAML" in p)
        assert "actions/ping.yaml:" in problem
        assert "more than 1,048,576 characters, counting each alias as its text" in problem

    def test_keys_count_as_well(self, folder):
        items = ", ".join(["*m"] * 20)
        keys = ", ".join(f"{'k' * 1_000}{n}: 1" for n in range(100))
        folder.write("pack.yaml", f"a: &m {{{keys}}}\nb: [{items}]\n")
        assert "1,048,576 characters" in "".join(folder.problems())


class TestEntryPoints:
    @pytest.mark.parametrize(
        "command", ["../evil/run.sh", "bin/../../evil.sh", "./../x", "link/run.sh"]
    )
    def test_relative_command_stays_in_the_pack(self, folder, command):
        (folder.path / "link").symlink_to("/usr/bin")
        folder.action(entry_point=[command])
        (problem,) = folder.problems()
        assert "expected a path in the pack's folder, or one that begins with /" in problem
        assert problem.startswith("actions/ping.yaml:")

    @pytest.mark.parametrize("command", ["bin/run.sh", "./run.sh", "/usr/bin/env", "env"])
    def test_other_commands_are_as_before(self, folder, command):
        folder.action(entry_point=[command])
        assert folder.load().actions[0].entry_point == [command]

    def test_command_is_not_put_together_from_parameters(self, folder):
        folder.action(entry_point=["bin/{host}"])
        (problem,) = folder.problems()
        assert "expected a name or a path without parameters" in problem

    def test_endless_module_is_not_parsed(self, folder):
        module = folder.path / "actions.py"
        with module.open("wb") as file:
            file.truncate(1 << 40)
        folder.action(runtime="python", entry_point="net.actions:run", parameters={})
        (problem,) = folder.problems()
        assert "expected at most 4,194,304 bytes" in problem

    def test_module_that_is_nested_too_deeply_is_a_problem(self, folder):
        folder.write("actions.py", "x = " + "-" * 200_000 + "1")
        folder.action(runtime="python", entry_point="net.actions:run", parameters={})
        (problem,) = folder.problems()
        assert "actions.py" in problem


ESCAPES = "\x1b[31mred\x1b[0m \x07 [bold]loud[/bold] \x9b2J"


class TestTerminal:
    def test_description_is_shown_without_escapes_when_checked(self, folder):
        folder.action(description=ESCAPES.replace("\x9b", "").replace("\x07", ""))
        printed = commands.printed("pack", "validate", str(folder.path))
        _assert_plain(printed)

    @pytest.mark.django_db
    def test_description_is_shown_without_escapes_when_listed(self):
        pack = Pack.objects.create(
            name="net", version="\x1b[1m", path="/x[bold]", installed_at=NOW, description=ESCAPES
        )
        Action.objects.create(
            ref="net.ping", pack=pack, description=ESCAPES, runtime="shell", entry_point=["x"],
            updated_at=NOW,
        )  # fmt: skip
        _assert_plain(commands.printed("pack", "list"))

    def test_problems_quote_no_escapes(self, folder, capsys):
        folder.write("actions/\x1b[31m.yaml", "name: 5\n")
        with pytest.raises(SystemExit):
            commands.printed("pack", "validate", str(folder.path))
        _assert_plain(capsys.readouterr().err)

    def test_errors_of_commands_quote_no_escapes(self):
        with pytest.raises((CommandError, SystemExit)) as error:
            commands.printed("template", "validate", "/no/\x1b[31m.yaml")
        _assert_plain(str(error.value))


def _assert_plain(text: str) -> None:
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\x07" not in text
    assert "loud" not in text or "[bold]loud[/bold]" in text
