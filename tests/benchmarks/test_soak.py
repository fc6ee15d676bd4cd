"""What the soak says of values that vary, and of values that grow."""

from __future__ import annotations

import sys

import pytest

from benchmarks import soak
from benchmarks.soak import Growth


def rows(*values: float) -> Growth:
    return Growth("table", "rows", soak.MORE_ROWS, soak.MORE_ROWS_SHARE, list(values))


def test_what_varies_is_bounded() -> None:
    assert rows(5_000, 6_000, 4_900, 5_800, 5_100, 6_000).is_bounded
    assert rows(0, 200, 0, 200).is_bounded


def test_what_grows_steadily_is_not() -> None:
    growing = rows(*range(1_000, 9_000, 100))
    assert list(growing.halves) == [2_950, 6_950]
    assert not growing.is_bounded


def test_one_high_value_is_no_growth() -> None:
    assert rows(100, 100, 100, 100, 90_000, 100).is_bounded


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "5", "--keep-minutes", "3"], "--minutes 5: expected at least 13.5"),
        (["--rate", "0"], "--rate 0: expected at least 1"),
    ],
)
def test_what_cannot_be_told_is_refused(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", *arguments])
    with pytest.raises(SystemExit):
        soak.main()
    assert said in " ".join(capsys.readouterr().err.split())
