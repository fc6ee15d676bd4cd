"""Muster's side of benchmarks of the console; called by `muster_side`, with its settings."""

from __future__ import annotations

import gzip
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlencode, urljoin

from django.conf import settings
from django.core.cache import caches
from django.db import connection
from django.db.models import Model
from django.http import HttpResponseBase
from django.test import Client
from django.urls import reverse

from benchmarks import console_fill
from benchmarks.console_names import HEAT_MAP, LISTS
from benchmarks.pages_side import _browser, _statements, _timed
from benchmarks.remote import BenchmarkError
from orchestrator.access.authorizer import AtTerminal
from orchestrator.automation.models import Event, Rule, Sensor, Trigger, Webhook
from orchestrator.bulk.models import BulkOrder
from orchestrator.console import addresses, kept
from orchestrator.core import clock, executions, garbage
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.shared_cache import OF_PROCESS
from orchestrator.inquiries.models import Inquiry
from orchestrator.policies.models import Policy
from orchestrator.queues.models import WorkQueue
from orchestrator.rollups import inbox
from orchestrator.rollups.models import FailureGroup
from orchestrator.workflows.models import Task, TaskTemplate

ROOT = AtTerminal("cli:benchmark")
GZIP = {"Accept-Encoding": "gzip"}

NOSCRIPT = re.compile(r"<noscript>.*?</noscript>", re.DOTALL)
LINK = re.compile(r'<(?:link|script)\b[^>]*?\b(?:href|src)="([^"]+)"')
IMPORT = re.compile(r'(?:^|[;}])import\s*(?:[\w{}\s,*]+from\s*)?"([^"]+)"', re.MULTILINE)
FONT_OR_IMPORT = re.compile(r"url\(\s*[\"']?([^\"')]+)")

HEARTBEAT_SECONDS = 5.0


# --- pages ---------------------------------------------------------------------------------------


def load_pages() -> None:
    """Load what answers, as `settings.asgi` does in a process that serves pages."""
    import_module(settings.ROOT_URLCONF)
    garbage.settle()


@dataclass
class Looked:
    """The cost of the answers of one page."""

    times_ms: list[float]
    statements: int
    """Of a page for which nothing is kept that is the same for everybody."""
    statements_after: int
    """Of the same page a moment later."""
    size: int
    gzipped: int


def console_paths() -> dict[str, str]:
    """The address of each page, by its name; of rows, one of the usual ones."""
    lists = ("now", "fleet", "run", "access", *LISTS)
    found = {name: reverse(f"console:{name}") for name in lists}
    found[HEAT_MAP] = found.pop("fleet")
    search = urlencode({"q": "status:failed created:<1d"})
    found |= {
        "executions, search": f"{found['executions']}?{search}",
        "executions, words": f"{found['executions']}?{urlencode({'q': 'printer7'})}",
        "tasks, open": f"{found['tasks']}?{urlencode({'state': 'open'})}",
        "causes, 7 days": f"{found['causes']}?{urlencode({'within': '7d'})}",
        "palette": f"{reverse('console:palette')}?{urlencode({'q': 'node-00'})}",
        "complete": f"{reverse('console:complete')}?{urlencode({'q': 'status:f'})}",
    }
    found |= dict(_of_rows())
    return found


def _of_rows() -> Iterator[tuple[str, str]]:
    """The pages of one row each."""
    ended = Execution.objects.filter(ended_at__isnull=False).order_by("-pk")
    rows: dict[str, Model | None] = {
        "execution": ended.first(),
        "execution, failed": ended.filter(status="failed").first(),
        "worker": Worker.objects.filter(name__startswith="node").first(),
        "task": Task.objects.exclude(correlation_id="large").order_by("-pk").first(),
        "template": TaskTemplate.objects.filter(name="linear-2").first(),
        "rule": Rule.objects.first(),
        "event": Event.objects.order_by("-pk").first(),
        "trigger": Trigger.objects.first(),
        "sensor": Sensor.objects.first(),
        "hook": Webhook.objects.first(),
        "inquiry": Inquiry.objects.first(),
        "policy": Policy.objects.first(),
    }
    for name, row in rows.items():
        if row is None:
            raise BenchmarkError(f"no {name} to look at")
        yield name, addresses.of(row)
    large = addresses.of(console_fill.large_task())
    for view in ("graph", "gantt", "steps", "timeline"):
        yield f"{view} of 1,000 steps", f"{large}?view={view}"
    order, entry = BulkOrder.objects.latest("pk"), DLQEntry.objects.pending().latest("pk")
    cause = max(inbox.read(ROOT).causes, key=lambda each: each.count).key
    named: dict[str, object] = {
        "cause": FailureGroup.objects.order_by("-count")[0].pk,
        "triage_cause": cause,
        "triage_entry": entry.dlq_entry_uuid,
        "queue": WorkQueue.objects.order_by("name")[0].name,
        "action": console_fill.ACTION,
        "pack": "core",
        "run-action": console_fill.ACTION,
        "bulk_order": order.pk,
    }
    for name, key in named.items():
        yield name, reverse(f"console:{name}", args=[key])
    new = urlencode({"verb": "cancel", "q": "status:open"})
    yield "bulk_new", f"{reverse('console:bulk_new')}?{new}"


def look_at_console(*, path: str, count: int) -> dict[str, Any]:
    """The cost of `count` answers of this page: with nothing kept of what is the same for
    everybody, as it is for who looks alone. Times are the server's, compression included."""
    return asdict(_looked(_browser(), path, count))


def _looked(client: Client, path: str, count: int) -> Looked:
    console_fill.keep_alive()

    def ask() -> None:
        _get(client, path)

    def ask_alone() -> float:
        _forget()
        return _timed(ask)

    ask()
    times_ms = [ask_alone() for _ in range(count)]
    _forget()
    clock.now()  # a process asks for it once a second, whatever it answers
    statements, statements_after = _statements(ask), _statements(ask)
    answer = _get(client, path)
    content = answer.content
    is_gzipped = answer.get("Content-Encoding") == "gzip"  # a few bytes are sent as they are
    size = len(gzip.decompress(content)) if is_gzipped else len(content)
    return Looked(times_ms, statements, statements_after, size, len(content))


def _forget() -> None:
    caches[OF_PROCESS].clear()
    kept.clear()


def _get(client: Client, path: str) -> Any:
    answer: Any = client.get(path, headers=GZIP)
    if answer.status_code != 200:
        raise BenchmarkError(f"GET {path}: {answer.status_code}: {answer.content[:300]!r}")
    return answer


# --- a first visit -------------------------------------------------------------------------------


def first_visit() -> tuple[int, int, int]:
    """The scripts and styles that a first look at Now loads, and what these load: the number of
    requests, the bytes, and the bytes as they are sent."""
    client = _browser()
    page = client.get(reverse("console:now"))
    html = NOSCRIPT.sub("", page.content.decode())
    left = [each for each in LINK.findall(html) if each.endswith((".js", ".css"))]
    loaded: dict[str, tuple[int, int]] = {}
    while left:
        url = left.pop()
        if url in loaded:
            continue
        answer: Any = client.get(url, headers=GZIP)
        sent = _content(answer)
        content = gzip.decompress(sent) if answer.get("Content-Encoding") == "gzip" else sent
        loaded[url] = len(content), min(len(sent), len(gzip.compress(content)))
        left += [urljoin(url, each) for each in _loads(url, content.decode())]
    return len(loaded), *(sum(sizes) for sizes in zip(*loaded.values(), strict=True))


def _loads(url: str, text: str) -> Sequence[str]:
    return (IMPORT if url.endswith(".js") else FONT_OR_IMPORT).findall(text)


def _content(answer: HttpResponseBase) -> bytes:
    return b"".join(answer) if answer.streaming else answer.content  # type: ignore[attr-defined]


# --- what tabs need ------------------------------------------------------------------------------


def log_in() -> str:
    """The cookie of an administrator's session."""
    client = _browser()
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


def topics_of(*, path: str) -> str:
    """The topics that a page says it follows."""
    page = _browser().get(path).content.decode()
    found = re.search(r'id="live" data-topics="([^"]*)"', page)
    if found is None:
        raise BenchmarkError(f"{path} follows nothing")
    return found[1]


def live_steadily(*, seconds: float, pause: Sequence[float] = (1.0, 1.0)) -> dict[str, float]:
    """Accept an execution every now and then, and renew what lives every five seconds, for so long:
    the monotonic time at which each was committed, by its id."""
    committed: dict[str, float] = {}
    now = time.monotonic()
    until, renew_at = now + seconds, now
    new = executions.NewExecution(action_ref=console_fill.ACTION)
    while (now := time.monotonic()) < until:
        if now >= renew_at:
            console_fill.keep_alive()
            renew_at = now + HEARTBEAT_SECONDS
        row = executions.request(new, requested_by="benchmark", now=clock.now())
        committed[str(row.pk)] = time.monotonic()
        time.sleep(random.uniform(*pause))
    return committed


def backend() -> int:
    """The process of the database that serves this one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])
