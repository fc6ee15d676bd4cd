"""The answer of a rule, leaf by leaf."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.automation.asking import Answer
from orchestrator.automation.shown import answers as shown
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section


def badge(answer: Answer) -> SafeString:
    """A badge that says if the rule matches, or the reason why it has no answer."""
    outcome = answer.explanation.outcome
    if outcome.broken:
        return render.badge(outcome.reason, "danger")
    return render.badge("matches", "success") if outcome.matched else render.badge("does not match")


def leaves(answer: Answer) -> SafeString | str:
    """The criteria with what each found."""
    rows = [
        [
            render.code(leaf.path if leaf.where == f"['{leaf.path}']" else leaf.where),
            leaf.operator,
            _json(leaf.pattern),
            _json(leaf.value),
            render.badge("holds", "success") if leaf.answer else render.badge("does not hold"),
            render.printable(leaf.note),
        ]
        for leaf in shown.shown(answer).criteria
    ]
    if answer.explanation.outcome.broken and not rows:
        return ""
    if not rows:
        return "It has no criteria: every event of its trigger matches."
    headers = ["Criterion", "Operator", "Compares with", "Found", "Answer", "Note"]
    return render.table(headers, rows)


def sections(answer: Answer) -> list[Section]:
    """The answer of a rule that is tested."""
    outcome = answer.explanation.outcome
    kind = "danger" if outcome.broken else "success" if outcome.matched else ""
    return [
        Section(title="Answer", facts=render.facts(shown.situation(answer)), kind=kind),
        Section(title="Criterion by criterion", body=leaves(answer)),
    ]


def _json(value: Any) -> SafeString | None:
    if value is None:
        return None
    return format_html('<span class="m-anywhere">{}</span>', render.code(_text(value)))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
