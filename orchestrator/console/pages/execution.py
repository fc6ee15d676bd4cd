"""An execution: what it is, where it stands, who moves it on, and how it came to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Count, Subquery
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_GET

from orchestrator.console import access, draw, execution_acts, lanes
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.console.pages.causes import cause_url
from orchestrator.core import executions, live_output, retention
from orchestrator.core.live_output import KEPT_BYTES, Follower
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, add_actions
from orchestrator.core.models.output import STREAMS
from orchestrator.core.shown import attempts, investigations, verdicts
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown import output as shown_output
from orchestrator.core.shown.executions import Content
from orchestrator.core.words import kind_of
from orchestrator.rollups.models import Failure

EVENTS_MAX = 1_000
LETTERS_MAX = 20
RERUNS_MAX = 10


class Tab(NamedTuple):
    """A part of the page with an address."""

    name: str
    title: str
    is_current: bool


@access.page("execution", needs="executions.read", topics="clock")
def show(look: Look, request: HttpRequest, id: UUID) -> Context:
    """One execution, and of its tabs the one that the address names."""
    execution = found(look, id)
    events = list(ExecutionEvent.objects.of(id)[:EVENTS_MAX])
    contents = shown.brought(execution, seen_by=look.user)
    letters = DLQEntry.objects.about(id).visible_to(look.user).order_by("-pk")
    tabs = _tabs(execution, contents, execution.letters or 0, len(events))
    tab = _chosen(request.GET.get("tab", ""), tabs, execution)
    dialogs = execution_acts.allowed(look, execution)
    moves = f"execution:{id}" if execution.is_terminal else f"execution:{id},clock"
    return {
        "title": execution.action_ref,
        "here": "executions",
        "topics": moves,
        "execution": execution,
        "kind": kind_of(execution.status),
        "verdict": draw.visible(verdicts.verdict(execution, look.now, seen_by=look.user)),
        "situation": draw.facts(
            shown.situation(execution, look.now, seen_by=look.user), seen_by=look.user
        ),
        "times": draw.facts(shown.times(execution, look.now), seen_by=look.user),
        "due": draw.facts(shown.due(execution, look.now), seen_by=look.user),
        "picture": _picture(execution, events, look),
        "tabs": [Tab(name, title, name == tab) for name, title in tabs.items()],
        "tab": tab,
        "content": _content(tab, look, execution, events, contents, letters),
        "dialogs": dialogs,
        "acts": execution_acts.useful(execution, dialogs),
        "with_changes": _with_changes(look, execution),
        "origin": _origin(look, execution),
        "reruns": _reruns(look, execution),
        "cause_url": cause_url(execution.cause) if execution.cause else "",
    }


def found(look: Look, id: UUID) -> Any:
    """The execution of this id, with the number of its letters and that of the cause of which it
    failed, as `letters` and `cause`; None for none. Raises UnknownExecution."""
    letters = DLQEntry.objects.about(id).visible_to(look.user).order_by().values("subject_id")
    cause = Failure.objects.filter(execution_id=id).values("group_id")
    rows = Execution.objects.filter(pk=id).select_related("worker", "pinned_worker")
    rows = rows.annotate(
        letters=Subquery(letters.annotate(number=Count("pk")).values("number")),
        cause=Subquery(cause),
    )
    execution = next(iter(add_actions(list(rows))), None)
    if execution is None or not look.may("executions.read", execution.place):
        why = retention.may_have_taken(id, now=look.now)
        raise executions.UnknownExecution(f"No execution has the id {id}. {why}")
    return execution


def _picture(
    execution: Execution, events: Sequence[ExecutionEvent], look: Look
) -> lanes.Picture | None:
    past = attempts.attempts(execution, events, look.now)
    attempts.add_lives(past)
    return lanes.picture(past)


def _with_changes(look: Look, execution: Execution) -> str:
    if not look.may("executions.run", execution.place):
        return ""
    url = reverse("console:run-action", args=[execution.action_ref])
    return f"{url}?{urlencode({'from': execution.pk})}"


def _origin(look: Look, execution: Execution) -> UUID | None:
    """The execution that this one runs again, if it is still there."""
    id = executions.origin_id(execution)
    if id is None:
        return None
    return (
        Execution.objects.visible_to(look.user).filter(pk=id).values_list("pk", flat=True).first()
    )


def _reruns(look: Look, execution: Execution) -> list[tuple[UUID, str]]:
    """The latest executions that run it again; of what is open there is none."""
    if not execution.is_terminal:
        return []
    rows = executions.reruns(execution).visible_to(look.user).order_by("-pk")
    return list(rows.values_list("pk", "status")[:RERUNS_MAX])


# --- tabs ----------------------------------------------------------------------------------------


def _tabs(
    execution: Execution, contents: Sequence[Content], letters: int, events: int
) -> dict[str, str]:
    """The titles of the tabs, by the names that they have in the address."""
    more = f"{LETTERS_MAX}+" if letters > LETTERS_MAX else str(letters)
    return {
        "result": "result",
        **({name: name for name in STREAMS} if execution.attempt else {}),
        "parameters": "parameters",
        "request": "request",
        "letters": f"letters ({more})",
        "history": f"history ({events})",
        **{slugify(each.title): each.title.lower() for each in contents},
    }


def _chosen(name: str, tabs: dict[str, str], execution: Execution) -> str:
    if name in tabs:
        return name
    return "result" if execution.is_terminal else "history"


def _content(
    tab: str,
    look: Look,
    execution: Execution,
    events: Sequence[ExecutionEvent],
    contents: Sequence[Content],
    letters: Any,
) -> Context:
    """The content that the tab shows, as its template reads it."""
    draws: dict[str, Callable[[], Context]] = {
        "result": lambda: {"text": draw.json(shown.result(execution, seen_by=look.user))},
        "parameters": lambda: {"text": draw.json(shown.parameters(execution, seen_by=look.user))},
        "request": lambda: {"facts": draw.facts(shown.request(execution), seen_by=look.user)},
        "letters": lambda: {"letters": [_letter(each, look) for each in letters[:LETTERS_MAX]]},
        "history": lambda: {
            "timeline": [draw.line(each) for each in shown.timeline(execution, list(events))],
            "most": EVENTS_MAX if len(events) >= EVENTS_MAX else 0,
        },
        **{stream: lambda: {"output": _output(execution, tab, look)} for stream in STREAMS},
    }
    draws |= {slugify(each.title): _drawer_of(each, look) for each in contents}
    return draws[tab]()


def _drawer_of(content: Content, look: Look) -> Callable[[], Context]:
    return lambda: {
        "facts": draw.facts(content.facts, seen_by=look.user),
        "text": draw.json(content.value),
    }


def _letter(entry: DLQEntry, look: Look) -> Context:
    """An investigation about it, with the broker's record of its letter."""
    rows = investigations.deaths(investigations.x_death(entry)) if entry.x_death else ()
    return {
        "name": f"{entry.dlq_reason} {entry.dlq_entry_uuid}",
        "link": draw.link(entry, "the investigation"),
        "facts": draw.facts(
            investigations.situation(entry, look.now, seen_by=look.user), seen_by=look.user
        ),
        "deaths": [[draw.printable(value) for value in row] for row in rows],
        "headings": investigations.DEATH,
    }


# --- output --------------------------------------------------------------------------------------


def _output(execution: Execution, stream: str, look: Look) -> Context:
    """The newest that a stream has brought, and the place from which a page reads on."""
    part = live_output.newest(execution, stream=stream, most_bytes=KEPT_BYTES)
    if part is None:  # it ran too briefly for a chunk
        part = live_output.of_result(execution, stream=stream)
    drawn = shown_output.part(part, of=execution, seen_by=look.user)
    follower = Follower(execution.pk, streams=(stream,))
    follower.attempt, follower.offsets[stream] = execution.attempt, part.next_offset
    url = reverse("console:execution-output", args=[execution.pk])
    return {
        "text": draw.visible(drawn.text),
        "offset": part.offset,
        "is_open": not execution.is_terminal,
        "place": "" if execution.is_terminal else follower.place,
        "url": f"{url}?{urlencode({'stream': stream})}",
        "attempt": execution.attempt,
    }


@require_GET
@access.staff_only
def output(request: HttpRequest, id: UUID) -> HttpResponseBase:
    """The output that a stream has brought since a place, as JSON: its text, the place to go on
    from, and whether that was all."""
    look = Look.of(request)
    # once a second: without what may be large
    row = Execution.objects.filter(pk=id).only("action_ref").first()
    if row is None or not look.may("executions.read", row.place):
        return JsonResponse({"detail": f"No execution has the id {id}"}, status=404)
    stream = request.GET.get("stream", "")
    follower = Follower(id, streams=(stream if stream in STREAMS else STREAMS[0],))
    if not follower.resume(request.GET.get("place", "")):
        return JsonResponse({"detail": "expected the place of an answer before"}, status=400)
    attempt, texts = follower.attempt, []
    for part in follower.parts():
        assert follower.execution is not None
        if part.attempt != attempt:
            texts.append(f"--- attempt {part.attempt} ---\n")
            attempt = part.attempt
        if part.dropped_bytes:
            texts.append(f"--- {part.dropped_bytes:,} bytes were not kept ---\n")
        texts.append(shown_output.part(part, of=follower.execution, seen_by=look.user).text)
    text = draw.visible("".join(texts))
    return JsonResponse({"text": text, "place": follower.place, "is_over": follower.is_over})
