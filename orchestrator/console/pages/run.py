"""Run: find an action, fill in the form that its schema makes, and request an execution."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.crypto import salted_hmac

from orchestrator.access import audit
from orchestrator.console import access, paging, schema_form
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import authority, executions, queue_terms, words
from orchestrator.core.authority import DANGEROUS
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.executions import BOUNDS, NewExecution
from orchestrator.core.models import Action, Execution, Worker, add_actions
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown import requests as shown_requests

ACTIONS_MAX = 100
WORKERS_MAX = 200
LABEL = re.compile(r"\s*([^=\s]+)\s*=\s*(.*?)\s*")


class UnknownAction(NotFound):
    """No action has this name."""


@dataclass
class Option:
    """Something of a request besides its parameters."""

    name: str
    """As the API calls it; `worker` and `labels` have names of their own."""
    title: str
    hint: str = ""
    pointer: str = ""
    typed: str = ""
    choices: Sequence[str] = ()
    """The choices that a browser offers; others may be typed."""
    is_long: bool = False
    refusals: list[str] = field(default_factory=list)


@access.page("run", needs="executions.run", topics="presence")
def find(look: Look, request: HttpRequest) -> Context:
    """The actions that the user may run."""
    text = paging.typed(request)
    rows = Action.objects.visible_to(look.user, "executions.run").filter(enabled=True)
    for word in text.split():
        rows = rows.filter(Q(ref__icontains=word) | Q(description__icontains=word))
    actions = list(rows.order_by("ref")[: ACTIONS_MAX + 1])
    return {
        "title": "Run",
        "here": "run",
        "q": text,
        "actions": actions[:ACTIONS_MAX],
        "most": ACTIONS_MAX if len(actions) > ACTIONS_MAX else 0,
    }


@access.page("run_action", needs="executions.run", topics="presence")
def show(look: Look, request: HttpRequest, ref: str) -> Context | HttpResponseBase:
    """The form of an action; sent, it requests an execution, or says what was refused where."""
    form = Form(look, _action(look, ref), _origin(look, request))
    if request.method == "POST":
        new = form.read(request.POST)
        if "preview" not in request.POST and not form.is_refused:
            accepted = form.submit(new)
            if accepted is not None:
                return _accepted(request, look, accepted)
    else:
        new = form.fill()
    given = shown_requests.body(new, form.action)
    url = request.build_absolute_uri(reverse("api-1:request_execution"))
    return {
        "title": f"Run {ref}",
        "here": "run",
        "action": form.action,
        "form": form,
        "command": shown_requests.command(given),
        "curl": shown_requests.curl(given, url=url),
        "is_dangerous": form.action.dangerous,
        "may_not": form.action.dangerous and not look.may(DANGEROUS, form.action.place),
    }


class Form:
    """The form of an action, for one look at it."""

    def __init__(self, look: Look, action: Action, origin: Execution | None) -> None:
        self.look, self.action, self.origin = look, action, origin
        self.fields = schema_form.fields(action.parameters_schema)
        self.options = _options(action, look)
        if origin is not None:  # it keeps that of its origin, by which a search finds both
            self.options = [each for each in self.options if each.name != "correlation_id"]
        self.refusals: list[str] = []
        """The refusals that are about no field."""
        self.token = str(uuid4())

    @property
    def is_refused(self) -> bool:
        of_fields = (each.refusals for each in self.fields)
        return bool(self.refusals) or any(of_fields) or self.has_refused_option

    @property
    def has_refused_option(self) -> bool:
        return any(each.refusals for each in self.options)

    @property
    def has_options(self) -> bool:
        """Show the options: something was typed there."""
        return self.has_refused_option or any(each.typed for each in self.options)

    def fill(self) -> NewExecution:
        """Fill in what the origin was asked to do, but for its secrets; returns the request."""
        if self.origin is None:
            return NewExecution(action_ref=self.action.ref)
        origin = self.origin
        schema_form.fill(self.fields, shown.parameters(origin, seen_by=self.look.user))
        typed = {
            "queue": origin.queue or queue_terms.DEFAULT,
            "worker": origin.pinned_worker.name if origin.pinned_worker else "",
            "labels": "\n".join(f"{k}={v}" for k, v in (origin.worker_selector or {}).items()),
            "priority": origin.priority,
            "timeout_seconds": origin.timeout_seconds,
            "queue_ttl_ms": origin.queue_ttl_ms,
            "scheduled_timeout_seconds": origin.scheduled_timeout_seconds,
            "deadline_seconds": (origin.deadline_at - origin.created_at).total_seconds(),
        }
        for each in self.options:
            value = typed.get(each.name)
            each.typed = _number(value)
        return self._request({each.input: each.typed for each in self.fields} | self._typed())

    def read(self, typed: Mapping[str, str]) -> NewExecution:
        """Read what was typed. What cannot be read is refused at its place."""
        self.token = self.look.token or self.token
        for each in self.options:
            each.typed = typed.get(each.name, "").replace("\r\n", "\n").strip()
        return self._request(typed)

    def submit(self, new: NewExecution) -> Execution | None:
        """Request the execution; None if it was refused, which then stands at its place."""
        try:
            return executions.request(
                new,
                requested_by=self.look.user.actor,
                principal=self.look.user,
                now=self.look.now,
            )
        except executions.RequestRefused as refused:
            self._refuse([(each.pointer, each.message) for each in refused.refusals])
        except Conflict as conflict:
            self.refusals.append(str(conflict))
        return None

    def _request(self, typed: Mapping[str, str]) -> NewExecution:
        parameters = schema_form.read(self.fields, typed)
        values = {each.name: self._option(each) for each in self.options if each.typed}
        worker_selector = values.pop("labels", None)
        identity = {"idempotency_key": f"run:{self._token_of(parameters, values)}"}
        if self.origin is not None:
            token = self._token_of(parameters, values)
            identity = executions.as_again(self.origin, token)
        return NewExecution(
            action_ref=self.action.ref,
            parameters=parameters,
            worker_id=values.pop("worker", None),
            worker_selector=worker_selector,
            **{**identity, **values},
        )

    def _typed(self) -> dict[str, str]:
        return {each.name: each.typed for each in self.options}

    def _token_of(self, parameters: Any, values: Any) -> str:
        """The same for the same wish: a form that is sent twice makes one execution, and another
        one if something was changed before. Secrets are in it, so it is keyed."""
        wish = json.dumps([parameters, values], sort_keys=True, default=str)
        return f"{self.token}:{salted_hmac('console.run', wish).hexdigest()[:16]}"

    def _option(self, option: Option) -> Any:
        try:
            return _value(option, self.look)
        except schema_form.NotRead as error:
            option.refusals.append(str(error))
            return None

    def _refuse(self, refusals: list[tuple[str, str]]) -> None:
        for pointer, message in schema_form.refuse(self.fields, refusals):
            about = [each for each in self.options if pointer.startswith(each.pointer)]
            if about:
                about[0].refusals.append(message)
            else:
                self.refusals.append(f"{pointer}: {message}")


def _options(action: Action, look: Look) -> list[Option]:
    known = [each.name for each in look.workers][:WORKERS_MAX]
    queues = [queue_terms.DEFAULT, *sorted(queue_terms.queues().terms())][:WORKERS_MAX]
    own = f"{action.timeout_seconds:g}" if action.timeout_seconds else "the installation's"

    def between(name: str) -> str:
        least, most = BOUNDS[name]
        return f"{least:,} to {most:,}"

    return [
        Option("worker", "Worker", "Only this one.", "/worker_id", choices=known),
        Option(
            "labels", "Labels", "Of its worker: key=value, one a line.", "/worker_selector",
            is_long=True,
        ),
        Option("queue", "Queue", "Without one: that of the action.", "/queue", choices=queues),
        Option("priority", "Priority", f"Higher is first; {between('priority')}.", "/priority"),
        Option(
            "timeout_seconds", "Time limit (s)", f"Of its run. Without one: {own}.",
            "/timeout_seconds",
        ),
        Option(
            "queue_ttl_ms", "Longest wait in a queue (ms)", between("queue_ttl_ms"),
            "/queue_ttl_ms",
        ),
        Option(
            "scheduled_timeout_seconds", "Longest wait for its start (s)",
            "From its dispatch on.", "/scheduled_timeout_seconds",
        ),
        Option(
            "deadline_seconds", "Over after (s)", "From its acceptance on.", "/deadline_seconds"
        ),
        Option(
            "correlation_id", "Correlation id", "Yours, to find related ones.", "/correlation_id"
        ),
    ]  # fmt: skip


def _number(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


WHOLE = ("priority", "queue_ttl_ms")


def _value(option: Option, look: Look) -> Any:
    """The value that an option's text means. Raises NotRead."""
    text = option.typed
    if option.name == "worker":
        return _worker(text, look)
    if option.name == "labels":
        return dict(_labels(text))
    if option.name not in BOUNDS:
        return text
    is_whole = option.name in WHOLE
    if not schema_form.NUMBER.fullmatch(text) or (is_whole and not re.fullmatch(r"-?\d+", text)):
        raise schema_form.NotRead(f"expected a {'whole ' * is_whole}number, found {text[:40]!r}")
    return int(text) if is_whole else float(text)


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        if not line.strip():
            continue
        label = LABEL.fullmatch(line)
        if label is None:
            raise schema_form.NotRead(f"expected key=value, found {line[:40]!r}")
        yield label[1], label[2]


def _worker(text: str, look: Look) -> int:
    visible = Worker.objects.visible_to(look.user)
    id = visible.filter(name=text).values_list("pk", flat=True).first()
    if id is None:
        hint = words.did_you_mean(text, [each.name for each in look.workers])
        raise schema_form.NotRead(f"no worker is called {text[:100]!r}{hint}")
    return id


def _action(look: Look, ref: str) -> Action:
    """The action of this name that the user may run. Raises UnknownAction, PermissionMissing."""
    action = Action.objects.filter(ref=ref).first()
    if action is None:
        known = Action.objects.visible_to(look.user, "executions.run")
        hint = words.did_you_mean(ref, known.values_list("ref", flat=True)[:2_000])
        raise UnknownAction(f"No action is called {ref!r}{hint}")
    authority.require(look.user, "executions.run", action.place)
    return action


def _origin(look: Look, request: HttpRequest) -> Execution | None:
    """The execution whose request fills the form. Raises UnknownExecution."""
    text = request.GET.get("from", "")
    if not text:
        return None
    try:
        rows = list(Execution.objects.filter(pk=UUID(text)).select_related("pinned_worker"))
    except ValueError:
        rows = []
    execution = next(iter(add_actions(rows)), None)
    if execution is None or not look.may("executions.read", execution.place):
        raise executions.UnknownExecution(f"No execution has the id {text[:40]}")
    return execution


def _accepted(request: HttpRequest, look: Look, execution: Execution) -> HttpResponseBase:
    is_new = execution.created_at == look.now
    if is_new:
        audit.changed()
    text = "Accepted." if is_new else "This was sent before: it is this execution."
    messages.success(request, text)
    return HttpResponseRedirect(reverse("console:execution", args=[execution.pk]))
