"""Now, in a terminal: what the page shows, by the same functions, as lines of text."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from orchestrator.console import attention, heat, kept
from orchestrator.console.attention import Item
from orchestrator.console.look import Look
from orchestrator.console.pages import now as now_page
from orchestrator.console.pages import queues as queues_page
from orchestrator.console.pages.now import Number
from orchestrator.console.pages.queues import Lane
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.management.output import STYLES
from orchestrator.core.management.tables import Table
from orchestrator.core.words import Kind

CELLS = {"runs": ("■", "blue"), "waits": ("▒", "yellow"), "free": ("□", "bright_black")}
PLAIN_CELLS = {"■": "#", "▒": "~", "□": ".", "▲": "!", "●": "*", "─": "-", "…": "...", "·": "-"}
"""For terminals that know no other letters than those of English."""


@dataclass(frozen=True)
class Snapshot:
    """The content that Now shows at one moment; parts that the caller may not see are empty."""

    at: datetime
    attention: Sequence[Item]
    recent: Sequence[Number] = ()
    open: Sequence[Number] = ()
    sum: heat.Sum | None = None
    fleet: Sequence[heat.Row] = ()
    lanes: Sequence[Lane] = field(default_factory=list)


def read(user: Principal) -> Snapshot:
    """Read all of it. Raises the errors of the database."""
    kept.clear()  # nobody else looks in this process
    look = Look(user)
    sees_work, sees_fleet = look.may("executions.read"), look.may("workers.read")
    counted = now_page.read_open(look)
    fleet = heat.all_plain(look) if sees_fleet else ()
    return Snapshot(
        at=look.now,
        attention=attention.items(look),
        recent=now_page.recent(look) if sees_work else (),
        open=now_page.open_by_status(look, counted) if sees_work else (),
        sum=heat.summed(fleet) if sees_fleet else None,
        fleet=fleet,
        lanes=queues_page.lanes(look) if look.may("queues.read") else (),
    )


# --- as JSON -------------------------------------------------------------------------------------


def document(seen: Snapshot) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "at": seen.at,
        "attention": [
            {"title": each.title, "detail": each.detail, "kind": str(each.kind)}
            for each in seen.attention
        ],
        "recent": _numbers(seen.recent),
        "open": _numbers(seen.open),
        "fleet": None if seen.sum is None else vars(seen.sum),
        "workers": [_worker(row) for row in seen.fleet],
        "queues": [_lane(lane) for lane in seen.lanes],
    }


def _numbers(numbers: Sequence[Number]) -> list[dict[str, Any]]:
    return [{"name": each.name, "count": each.count, "note": each.note} for each in numbers]


def _worker(row: heat.Row) -> dict[str, Any]:
    return {
        "name": row.worker.name,
        "state": row.state,
        "running": row.running,
        "waiting": row.waiting,
        "slots": row.worker.capacity,
        "heartbeat": row.heartbeat,
        "note": row.note,
    }


def _lane(lane: Lane) -> dict[str, Any]:
    queue = lane.queue
    return {
        "name": queue.name,
        "state": queue.state,
        "waiting": queue.waiting,
        "running": queue.running,
        "max_running": queue.max_running,
        "oldest_seconds": queue.oldest_seconds,
        "accepted_per_minute": lane.accepted,
        "ended_per_minute": queue.per_minute,
        "why": lane.why,
    }


# --- as text -------------------------------------------------------------------------------------


def lines(seen: Snapshot, *, width: int, is_coloured: bool, is_plain: bool = False) -> list[str]:
    """All of it as lines of at most this width, with the codes of a terminal for colours;
    `is_plain`: in ASCII."""
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=is_coloured,
        color_system="standard" if is_coloured else None,
        highlight=False,
        legacy_windows=False,
    )
    for each in parts(seen):
        console.print(each, soft_wrap=isinstance(each, Table))
    whole = text.getvalue()
    if is_plain:
        for letter, plain in PLAIN_CELLS.items():
            whole = whole.replace(letter, plain)
    return whole.splitlines()


def parts(seen: Snapshot) -> Iterator[RenderableType]:
    """The parts of Now: what needs attention, numbers, the fleet slot by slot, lanes."""
    yield from map(_item, seen.attention)
    if not seen.attention:
        yield Text("Nothing needs attention.", STYLES[Kind.SUCCESS])
    if seen.recent:
        yield _heading("Accepted in the last 15 minutes")
        yield _in_a_row(seen.recent)
        yield _heading("Open")
        yield _in_a_row(seen.open)
    if seen.sum is not None:
        yield _heading("Fleet", _summed(seen.sum))
        yield _fleet(seen.fleet)
    if seen.lanes:
        yield _heading("Queues")
        yield _lanes(seen.lanes)


def _item(item: Item) -> Text:
    mark = "▲" if item.kind is Kind.DANGER else "●"
    line = Text(f"{mark} ", STYLES[item.kind]) + output.plain(item.title)
    line.stylize(STYLES[item.kind])
    if item.detail:
        line += Text("  ") + Text(output.plain(item.detail).plain, "bright_black")
    return line


def _heading(text: str, note: str = "") -> Text:
    return Text.assemble("\n", (text, "bold"), f"  {note}" if note else "")


def _in_a_row(numbers: Sequence[Number]) -> Text:
    line = Text()
    for each in numbers:
        line += Text("   " if line else "")
        line += Text.assemble((f"{each.name} ", "bright_black"), (each.text, STYLES[each.kind]))
        if each.note:
            line += Text(f" ({each.note})", "bright_black")
    return line


def _summed(fleet: heat.Sum) -> str:
    return (
        f"{fleet.up} of {fleet.workers} workers up, {fleet.running} of {fleet.slots} slots busy, "
        f"{fleet.percent} %"
    )


def _fleet(rows: Sequence[heat.Row]) -> RenderableType:
    if not rows:
        return Text("No worker has registered yet. Start one: manage.py worker", "bright_black")
    table = Table("worker", "*slots", ">load", "state", ">heartbeat", "*why")
    for row in rows:
        table.add_row(
            output.plain(row.worker.name),
            _cells(row),
            row.load,
            Text(row.state, STYLES[row.kind]),
            Text(row.heartbeat, STYLES[row.heartbeat_kind]),
            output.plain(row.note),
        )
    return table


def _cells(row: heat.Row) -> Text:
    cells = Text()
    for cell in row.cells:
        letter, style = CELLS[cell.kind]
        cells += Text(letter, style)
    return cells + Text(f" +{row.more}" if row.more else "")


def _lanes(found: Sequence[Lane]) -> Table:
    table = Table(
        *("queue", "state", ">waiting", ">running", ">oldest", ">in / out a min", "*served by"),
        "*why",
    )
    for lane in found:
        table.add_row(
            output.plain(lane.queue.name),
            Text(lane.queue.state, STYLES[lane.kind]),
            f"{lane.queue.waiting:,}",
            lane.running,
            lane.oldest,
            lane.rate,
            output.plain(lane.servers),
            output.plain(lane.why),
        )
    return table
