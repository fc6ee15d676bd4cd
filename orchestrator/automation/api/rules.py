"""Rules: list, show, create, replace, retire, enable, disable, test; their revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from ninja import Body, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.automation import asking, definitions, options, rules
from orchestrator.automation.models import Event, Rule, RuleRevision
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.shown import answers
from orchestrator.automation.shown import rules as shown
from orchestrator.automation.shown.answers import AnswerShown
from orchestrator.automation.shown.rules import RevisionShown, RuleDetail, RuleSummary
from orchestrator.core import authority, cursors
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.executions import Retry
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.errors import Conflict
from orchestrator.core.json_values import pointer

router = Router(tags=["rules"])

Ref = Annotated[pages.Text, Path()]
RELATED = ("trigger__type", "revision", "owner__user", "pack")


class RuleExists(Conflict):
    """A rule of this name says something else: replace it with PUT."""

    kind = "rule-exists"


class RuleOfPack(Conflict):
    """A rule of a pack is changed by its pack; it can be disabled here."""

    kind = "rule-of-pack"


class RuleTrigger(BaseModel):
    """The event that a rule waits for: a type with parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: pages.Text = Field(examples=["core.cron"])
    parameters: dict[str, Any] = Field({}, examples=[{"cron": "0 5 * * *"}])


class RuleAction(BaseModel):
    """The action that a rule runs then."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ref: pages.Text = Field(examples=["core.echo"])
    parameters: dict[str, Any] = Field(
        {}, description="With expressions over `trigger`, `event`, `rule`, `pack` and `keys`."
    )


class Suppress(BaseModel):
    """Answer the same at most once in this time."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: str = Field("", description="An expression; equal values are the same.")
    seconds: float


class RuleBody(BaseModel):
    """The content of a rule."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: pages.Text = ""
    enabled: bool = True
    trigger: RuleTrigger
    criteria: dict[str, Any] = Field({}, description="All must hold; none holds for every event.")
    action: RuleAction
    type: Literal["standard", "backstop"] = Field(
        "standard", description="A backstop is asked if no other rule of its trigger matched."
    )
    suppress: Suppress | None = None
    priority: int | None = None
    timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    queue_ttl_ms: int | None = None
    scheduled_timeout_seconds: float | None = None
    worker_selector: dict[str, str] | None = None
    retry: Retry | None = None
    queue: str | None = Field(
        None, description="The queue of its executions; null for that of the action."
    )


class NewRuleBody(RuleBody):
    """A rule with its name."""

    ref: pages.Text = Field(max_length=130, examples=["ops.nightly"], description="`pack.name`")


class Question(BaseModel):
    """The subject of a question to a rule: a payload, or a past event."""

    model_config = ConfigDict(extra="forbid")

    payload: dict[str, Any] | None = None
    event_id: UUID | None = None


class RevisionPage(pages.Page):
    items: list[RevisionShown]


class RuleDryRun(BaseModel):
    dry_run: bool = Field(
        False, description="true to check it all and answer 200 with the rule as it would be."
    )


class RulePage(pages.Page):
    items: list[RuleSummary]


class RuleQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    pack: pages.Text | None = Field(None, description="What their names begin with.")
    trigger_id: int | None = Field(None, ge=1, lt=2**63)
    enabled: bool | None = None
    retired: bool = Field(False, description="true to include those out of use.")


@router.get("", auth=needs("rules.read"), response=documented(422, _200=RulePage))
def list_rules(request: AuthenticatedRequest, query: Query[RuleQuery]) -> HttpResponse:
    """Rules, by name."""
    refuse_unknown_parameters(request, RuleQuery)
    rows = Rule.objects.visible_to(request.auth.principal).select_related(*RELATED)
    if query.pack is not None:
        rows = rows.filter(ref__startswith=f"{query.pack}.")
    if query.trigger_id is not None:
        rows = rows.filter(trigger=query.trigger_id)
    if query.enabled is not None:
        enabled = Rule.objects.enabled().values("pk")
        rows = rows.filter(pk__in=enabled) if query.enabled else rows.exclude(pk__in=enabled)
    if not query.retired:
        rows = rows.filter(retired_at__isnull=True)
    found, cursor = pages.by_name(rows, query, field="ref")
    items = [shown.summary(row) for row in found]
    return reply(RulePage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post(
    "", auth=needs("rules.install"), response=documented(409, _201=RuleDetail, _200=RuleDetail)
)
def create_rule(
    request: AuthenticatedRequest, new: Body[NewRuleBody], query: Query[RuleDryRun]
) -> HttpResponse:
    """Create a rule, which runs its action with the caller's permissions: 201, or 200 if it is
    there and says the same. 409 if it says something else. A retired one is in use again."""
    refuse_unknown_parameters(request, RuleDryRun)
    in_use = Rule.objects.filter(ref=new.ref, retired_at__isnull=True)
    with transaction.atomic():
        is_there = in_use.exists()
        outcome = _install(request, new.ref, new)
        if is_there and outcome == rules.UPDATED:
            raise RuleExists  # and so nothing is changed
        if query.dry_run:
            return _foreseen(request, new.ref)
    return _reply(request, new.ref, outcome, f"{request.path}/{new.ref}")


@router.get("/{ref}", auth=needs("rules.read"), response=documented(404, _200=RuleDetail))
def get_rule(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """One rule, with what it says."""
    return reply(shown.detail(known(request, ref)))


@router.get(
    "/{ref}/revisions",
    auth=needs("rules.read"),
    response=documented(404, 422, _200=RevisionPage),
)
def list_revisions(
    request: AuthenticatedRequest, ref: Ref, query: Query[pages.PageQuery]
) -> HttpResponse:
    """The contents of a rule, now and before, newest first. Each event was answered by one of
    them."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows = RuleRevision.objects.filter(rule=known(request, ref))
    found, cursor = pages.newest_first(rows, query, key=cursors.whole_number)
    items = [shown.revision(row) for row in found]
    return reply(RevisionPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.put(
    "/{ref}",
    auth=needs("rules.install"),
    response=documented(409, _201=RuleDetail, _200=RuleDetail),
)
def replace_rule(
    request: AuthenticatedRequest, ref: Ref, new: Body[RuleBody], query: Query[RuleDryRun]
) -> HttpResponse:
    """Have the rule say this; its owner is the caller from then on. What an operator has enabled or
    disabled stays so. 201 if there was none. 409 if it belongs to a pack."""
    refuse_unknown_parameters(request, RuleDryRun)
    with transaction.atomic():
        outcome = _install(request, ref, new)
        if query.dry_run:
            return _foreseen(request, ref)
    return _reply(request, ref, outcome, request.path)


@router.delete(
    "/{ref}", auth=needs("rules.install"), response=documented(404, 409, _200=RuleDetail)
)
def retire_rule(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """Take a rule out of use; its enforcements stay. Safe to repeat. 409 if it belongs to a
    pack."""
    rule = known(request, ref, "rules.install")
    if rule.pack_id is not None:
        raise RuleOfPack
    rules.retire(ref, now=request.auth.now)
    return reply(shown.detail(known(request, ref, "rules.install")))


@router.post(
    "/{ref}/enable", auth=needs("rules.enable"), response=documented(404, 409, _200=RuleDetail)
)
def enable_rule(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """Have events ask it, whatever its pack says. Safe to repeat."""
    return _switched(request, ref, rules.enable)


@router.post(
    "/{ref}/disable", auth=needs("rules.enable"), response=documented(404, 409, _200=RuleDetail)
)
def disable_rule(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """Have no event ask it that is evaluated from now on; outlives upgrades. Safe to repeat."""
    return _switched(request, ref, rules.disable)


@router.post("/{ref}/test", auth=needs("rules.read"), response=documented(404, _200=AnswerShown))
def test_rule(request: AuthenticatedRequest, ref: Ref, question: Body[Question]) -> HttpResponse:
    """The answer of a rule to a payload or a past event, leaf by leaf. Nothing is recorded."""
    rule, caller = known(request, ref), request.auth
    if (question.payload is None) == (question.event_id is None):
        message = "expected a payload or an event_id"
        raise problems.invalid([FieldProblem(pointer="", message=message)])
    if question.event_id is not None:
        authority.require(caller.principal, "events.read")
        event = known_event(request, question.event_id)
        answer = asking.about_event(rule, event, seen_by=caller.principal)
    else:
        answer = asking.about_payload(
            rule, question.payload or {}, seen_by=caller.principal, now=caller.now
        )
    return reply(answers.shown(answer))


def known(request: AuthenticatedRequest, ref: str, permission: str = "rules.read") -> Rule:
    """The rule of this name; 404 if there is none for which the caller has the permission."""
    rows = Rule.objects.visible_to(request.auth.principal, permission).select_related(*RELATED)
    if (rule := rows.filter(ref=ref).first()) is None:
        raise problems.not_found(f"No rule is called {ref[:140]!r}")
    return rule


def known_event(
    request: AuthenticatedRequest, event_id: UUID, permission: str = "events.read"
) -> Event:
    """The event with this id; 404 if there is none for which the caller has the permission."""
    rows = Event.objects.visible_to(request.auth.principal, permission)
    if (event := rows.select_related("trigger__type").filter(pk=event_id).first()) is None:
        raise problems.not_found(f"No event has the id {event_id}")
    return event


def _install(request: AuthenticatedRequest, ref: str, body: RuleBody) -> str:
    """Install the rule; what became of it."""
    values = body.model_dump(exclude_unset=True, exclude={"ref"})
    given = {name for name in options.OPTIONS if values.get(name) is not None}
    values = {k: v for k, v in values.items() if k not in options.OPTIONS or k in given}
    caller = request.auth
    try:
        new = definitions.new_rule(values, ref=ref)
        return rules.install(new, now=caller.now, principal=caller.principal).outcome
    except InvalidDocument as invalid:
        raise problems.invalid(
            FieldProblem(pointer=pointer(problem.where), message=problem.message)
            for problem in invalid.problems
        ) from None


def _reply(request: AuthenticatedRequest, ref: str, outcome: str, location: str) -> HttpResponse:
    rule = known(request, ref, "rules.install")
    status = 201 if outcome == rules.CREATED else 200
    return reply(shown.detail(rule), status=status, location=location)


def _foreseen(request: AuthenticatedRequest, ref: str) -> HttpResponse:
    """The rule as it would be, in a transaction that is undone."""
    answer = reply(shown.detail(known(request, ref, "rules.install")))
    transaction.set_rollback(True)
    return answer


def _switched(request: AuthenticatedRequest, ref: str, verb: Callable[..., Rule]) -> HttpResponse:
    known(request, ref, "rules.enable")
    verb(ref, now=request.auth.now)
    return reply(shown.detail(known(request, ref, "rules.enable")))
