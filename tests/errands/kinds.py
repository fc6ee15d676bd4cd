"""Kinds of errands, as packs bring them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.core.authority import Principal
from orchestrator.core.models import Pack
from orchestrator.core.packs import ContentReport
from orchestrator.core.packs.keys import Key, check, is_text
from orchestrator.core.packs.source import Source
from tests.errands.models import ErrandKind

KEYS = {name: Key("text", is_text, required=True) for name in ("name", "action")}


def check_kind(file: Source) -> None:
    check(file, KEYS)


def install(
    definitions: Sequence[Mapping[str, Any]],
    *,
    pack: Pack | None = None,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    created: list[str] = []
    unchanged: list[str] = []
    for definition in definitions:
        values = {"action_ref": definition["action"], "pack": pack}
        _, is_new = ErrandKind.objects.update_or_create(values, name=definition["name"])
        (created if is_new else unchanged).append(definition["name"])
    return ContentReport(created=tuple(created), unchanged=tuple(unchanged))
