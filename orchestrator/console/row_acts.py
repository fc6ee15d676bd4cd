"""Acts on one row: which of them a user may do, which would change something now, and doing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from django.http import HttpRequest

from orchestrator.console import acts
from orchestrator.console.acts import Dialog
from orchestrator.console.look import Look
from orchestrator.core import authority
from orchestrator.core.authority import WHOLE, Place
from orchestrator.core.errors import NotFound


@dataclass(frozen=True)
class RowAct:
    """Something that an operator may do to a row."""

    name: str
    verb: Callable[[Any, Look, str], Any]
    """Takes the row, the look and the reason; calls what the API and the commands call."""
    needs: str
    is_useful: Callable[[Any], bool]
    question: str
    explanation: str
    done: str
    label: str = ""
    """On the button that opens its dialog; else its name."""
    has_token: bool = False
    """Its verb reads the form's token: sent twice, it does its work once."""


RowActs = Mapping[str, RowAct]


class Dialogs(NamedTuple):
    """The acts that a user may do to a row, and those that would change something now. What is not
    offered is refused all the same."""

    allowed: Sequence[Dialog]
    useful: Sequence[Dialog]


class UnknownAct(NotFound):
    """No act on this has this name."""


def named(*known: RowAct) -> dict[str, RowAct]:
    return {each.name: each for each in known}


def dialogs(known: RowActs, row: Any, look: Look, url: str, *, row_id: str = "") -> Dialogs:
    """The dialogs of a row, whose forms go to `url`. `row_id`: makes their ids differ where several
    rows are on one page."""
    allowed = {
        each.name: Dialog(
            id=f"{each.name}{row_id}",
            label=each.label or each.name.capitalize(),
            button=f"{each.name.capitalize()} {name_of(row)}",
            question=each.question.format(row=name_of(row)),
            explanation=each.explanation,
            url=url,
            hidden={"act": each.name} | ({"token": str(uuid4())} if each.has_token else {}),
        )
        for each in known.values()
        if look.may(each.needs, _place(row))
    }
    useful = [dialog for name, dialog in allowed.items() if known[name].is_useful(row)]
    return Dialogs(list(allowed.values()), useful)


def do(known: RowActs, row: Any, look: Look, request: HttpRequest) -> tuple[RowAct, str]:
    """Do what the form asks for; returns that, and its reason. Raises UnknownAct, ReasonMissing,
    PermissionMissing, and what the verb raises."""
    act = known.get(request.POST.get("act", ""))
    if act is None:
        raise UnknownAct(f"Expected one of {', '.join(known)}")
    authority.require(look.user, act.needs, _place(row))
    reason = acts.reason(request)
    act.verb(row, look, reason)
    return act, reason


def name_of(row: Any) -> str:
    """The name of the row."""
    return str(getattr(row, "ref", None) or getattr(row, "name", None) or row)


def _place(row: Any) -> Place:
    """A row without a place, as one of the schedule, belongs to the whole installation."""
    place: Place = getattr(row, "place", WHOLE)
    return place
