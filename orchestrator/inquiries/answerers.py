"""The rules of who may answer an inquiry: the same on every face."""

from __future__ import annotations

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden
from orchestrator.core.models import Execution
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.models.inquiries import tree_of

RESPOND = "inquiries.respond"


class MayNotAnswer(Forbidden):
    """This caller may not answer this inquiry."""


def require(inquiry: Inquiry, by: Principal) -> None:
    """Raise PermissionMissing, or MayNotAnswer with the reason:

    1. Whoever answers has the permission where the question was asked.
    2. They are among the assignees, by name or role, if there are any. An execution is always named
       by its action.
    3. They are not the one who asked, unless the question allows that.
    4. They are not an execution of the same tree: what asks cannot bring about its answer.
    """
    authority.require(by, RESPOND, inquiry.place)
    if why := refusal(inquiry, by):
        raise MayNotAnswer(why)


def refusal(inquiry: Inquiry, by: Principal) -> str:
    """The reason why this caller, who has the permission, may not answer; empty if they may."""
    if _is_of_same_tree(inquiry, by):
        return "An execution cannot answer what it, or what led to it, has asked"
    if not _is_assigned(inquiry, by):
        named = ", ".join(inquiry.assignees) or "people and services"
        return f"Only {named} may answer this inquiry"
    if not inquiry.allow_requester and _has_asked(inquiry, by):
        return f"{inquiry.asked_by} has asked this, so somebody else has to answer"
    return ""


def may(inquiry: Inquiry, by: Principal) -> bool:
    """Return True if this caller may answer."""
    return authority.may(by, RESPOND, inquiry.place) and not refusal(inquiry, by)


def _is_assigned(inquiry: Inquiry, by: Principal) -> bool:
    if inquiry.assignees or by.execution_id is not None:
        return not by.names_at(inquiry.place).isdisjoint(inquiry.assignees)
    return True


def _has_asked(inquiry: Inquiry, by: Principal) -> bool:
    if inquiry.asker_number or by.key_owner:
        return inquiry.asker_number == by.key_owner
    return inquiry.asked_by == by.actor


def _is_of_same_tree(inquiry: Inquiry, by: Principal) -> bool:
    if by.execution_id is None or not inquiry.tree:
        return False
    own = Execution.objects.filter(pk=by.execution_id).only("correlation_id").first()
    return own is None or tree_of(own) == inquiry.tree
