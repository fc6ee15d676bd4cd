"""The base class of StackStorm's actions, and how they are called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from muster_client import st2


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def write(pack: Path, text: str) -> str:
    (pack / "actions").mkdir(exist_ok=True)
    (pack / "actions" / "act.py").write_text(dedent(text))
    return str(pack)


@pytest.mark.parametrize(
    "base", ["st2common.runners.base_action", "st2actions.runners.pythonrunner"]
)
def test_both_places_of_the_base_class(tmp_path: Path, base: str) -> None:
    text = f"""
        from {base} import Action

        class Act(Action):
            def run(self, a, b):
                return [a, b]
        """
    pack = write(tmp_path, text)
    assert st2.run(pack, "act.py", {"a": 1}, {"a": 0, "b": 2}) == [1, 2]


def test_only_a_class_of_the_file_itself_is_the_action(tmp_path: Path) -> None:
    pack = write(tmp_path, "from st2common.runners.base_action import Action\n")
    with pytest.raises(st2.NotInMuster, match="defines no class"):
        st2.run(pack, "act.py", {}, {})


def test_older_constructor_and_configuration(tmp_path: Path) -> None:
    text = """
        from st2common.runners.base_action import Action

        class Act(Action):
            def __init__(self, config):
                super().__init__(config)

            def run(self):
                return self.config.get("host"), self.action_service is not None
        """
    pack = write(tmp_path, text)
    assert st2.run(pack, "act.py", {}, {}) == (None, True)
    (tmp_path / "config.json").write_text('{"host": "a"}')
    assert st2.run(pack, "act.py", {}, {}) == ("a", True)


def test_action_that_says_that_it_failed_fails(tmp_path: Path) -> None:
    text = """
        from st2common.runners.base_action import Action

        class Act(Action):
            def run(self, works):
                return works, {"why": "no disk"}
        """
    pack = write(tmp_path, text)
    assert st2.run(pack, "act.py", {"works": True}, {}) == {"why": "no disk"}
    with pytest.raises(st2.ActionFailed, match="no disk"):
        st2.run(pack, "act.py", {"works": False}, {})


@pytest.mark.parametrize("name", ["get_value", "set_value", "list_values", "get_user_info"])
def test_datastore_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(st2.NotInMuster, match=rf"action_service\.{name}: .* key"):
        getattr(st2.ActionService(), name)("x")
