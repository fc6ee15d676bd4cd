"""Which JSON values are refused before a database has to refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import json_values

DEEP: list[Any] = []
for _ in range(json_values.DEPTH_LIMIT):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, 2.5, "text", None, True]}, []),
        ({"a": ["\0"]}, [("/a/0", "contains a NUL character, which PostgreSQL cannot store")]),
        ("\ud800", [("", "contains half of a surrogate pair, which is not Unicode text")]),
        ({"a": float("nan")}, [("/a", "is beyond a double's range")]),
        ({"a/b": {"~": float("inf")}}, [("/a~1b/~0", "is beyond a double's range")]),
        ({"\0": 1}, [("", "a name contains a NUL character, which PostgreSQL cannot store")]),
    ],
    ids=repr,
)
def test_faults_name_their_place(value: Any, expected: list[tuple[str, str]]) -> None:
    assert list(json_values.faults(value)) == expected


def test_nesting_beyond_the_limit_is_a_fault_and_no_recursion() -> None:
    ((_, message),) = json_values.faults(DEEP)
    assert message == json_values.TOO_DEEP
