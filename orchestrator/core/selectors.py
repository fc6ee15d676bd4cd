"""Labels of workers, and selectors of them: `{"zone": "b", "gpu": "yes"}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_LABELS = 20
LONGEST_TEXT = 100


def problems(value: Any) -> list[tuple[str, str]]:
    """Find the problems with a selector, or with a worker's labels, as (key or "", message)."""
    if not isinstance(value, Mapping):
        return [("", f"expected a mapping of labels, found {type(value).__name__}")]
    faults = [(str(key), text) for key, label in value.items() if (text := _problem(key, label))]
    if len(value) > MOST_LABELS:
        faults.append(("", f"expected at most {MOST_LABELS} labels, found {len(value)}"))
    return faults


def conflicts(first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str]]:
    """Find the keys for which two selectors exclude each other, as (key, value of the first
    one)."""
    return [(key, first[key]) for key, value in second.items() if first.get(key, value) != value]


def _problem(key: Any, label: Any) -> str:
    for what, text in (("a key", key), ("a label", label)):
        if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT:
            return f"expected {what} of 1 to {LONGEST_TEXT} characters of text, found {text!r:.40}"
        if not text.isprintable():
            return f"expected {what} of printable characters, found {text!r:.40}"
    return ""
