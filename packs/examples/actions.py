"""The actions of the example templates: small, and without anything around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Declined(Exception):
    """The payment provider said no."""


class Unavailable(Exception):
    """The payment provider did not answer."""


def add(*, numbers: list[float]) -> dict[str, Any]:
    return {"sum": sum(numbers)}


def reserve(*, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the items aside."""
    return {"reserved": len(items), "total": sum(each["price"] * each["count"] for each in items)}


def charge(*, amount: float, card: str, provider: str | None = None) -> dict[str, Any]:
    """Charge a card. `provider`: a file; while it is not there, the provider is down."""
    if provider is not None and not Path(provider).exists():
        raise Unavailable(f"{provider} does not answer")
    if card == "declined":
        raise Declined(f"The card was declined for {amount:g}")
    return {"payment": f"{card}-{amount:g}", "amount": amount}


def route(*, amount: float, limit: float) -> dict[str, Any]:
    """The steps that an amount needs: a decision's result names them."""
    return {"steps": ["approve"] if amount <= limit else ["review", "sign"]}


def plan_rows(*, rows: int) -> dict[str, Any]:
    """The number of rows that there are: a batchable step's result is the range of a cursor."""
    return {"cursor": {"start": 0, "end": rows}}


def process_rows(*, start: int, end: int, fail_at: int | None = None) -> dict[str, Any]:
    """Do the rows from `start` to `end`."""
    if fail_at is not None and start <= fail_at < end:
        raise ValueError(f"row {fail_at} cannot be read")
    return {"rows": end - start, "sum": sum(range(start, end))}
