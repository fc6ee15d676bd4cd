"""Options that several commands of access have: what is granted and where, and durations."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.access import grants
from orchestrator.access.grants import Given
from orchestrator.core.management import arguments

DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def add_scope(parser: CommandParser) -> None:
    """Add `--pack`, `--namespace` and `--label`: where a grant holds."""
    for name, example in (("pack", "billing-*"), ("namespace", "shop")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"Only there, such as {example}; * stands for any characters. May be repeated.",
        )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=arguments.label,
        metavar="KEY=VALUE",
        help="Only for workers with this label. May be repeated: all of them.",
    )


def has_scope(options: dict[str, Any]) -> bool:
    """Return True if one of the options of `add_scope` was given."""
    return bool(options["pack"] or options["namespace"] or options["label"])


def given(gives: str, options: dict[str, Any]) -> Given:
    """The grant that the arguments name. Raises InvalidGrant."""
    return grants.check(
        gives,
        packs=options["pack"],
        namespaces=options["namespace"],
        labels=dict(options["label"]),
    )


def duration(most: timedelta) -> Callable[[str], timedelta]:
    """A duration such as `90s`, `30m`, `1h`, `7d`, or 0."""

    def read(text: str) -> timedelta:
        match = DURATION.fullmatch(text)
        seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
        if (match is None and text != "0") or seconds > most.total_seconds():
            raise ArgumentTypeError(
                f"expected a duration such as 30m, 1h or 7d, at most {most.days}d, found {text!r}"
            )
        return timedelta(seconds=seconds)

    return read


def days(most: int) -> Callable[[str], timedelta]:
    """A number of days above 0."""

    def read(text: str) -> timedelta:
        try:
            number = float(text)
        except ValueError:
            number = 0
        if not 0 < number <= most:
            raise ArgumentTypeError(f"expected days above 0 and up to {most}, found {text!r}")
        return timedelta(days=number)

    return read
