"""Template tags of the admin: what is wrong now, and the rows of a list in a tenth of the bytes of
the theme's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin.utils import (
    display_for_field,
    display_for_value,
    lookup_field,
)
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from django.template import Library
from django.template.context import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from unfold.templatetags.unfold_list import result_headers

from orchestrator.core import authority, clock
from orchestrator.core.admin import render
from orchestrator.core.alarms import now_wrong

register = Library()

CHECKBOX = "action_checkbox"
TICK = (
    '<td class="m-tick"><input type="checkbox" class="action-select" name="_selected_action" '
    'value="{}" aria-label="Select {}"></td>'
)
TICK_ALL = mark_safe(
    '<input type="checkbox" id="action-toggle" class="action-toggle" '
    'aria-label="Select all on this page">'
)


@register.inclusion_tag("orchestrator/admin/alarms.html", takes_context=True)
def alarms(context: Context) -> dict[str, Any]:
    """The alarms of the installation, for who may know."""
    if "alarms" in context:
        return {"alarms": context["alarms"]}
    user = authority.of_request(context["request"])
    return {"alarms": now_wrong(user, now=clock.now())}


@register.inclusion_tag("admin/change_list_results.html", takes_context=True)
def rows_of(context: Context, cl: ChangeList) -> dict[str, Any]:
    """The list's headers and rows."""
    names = [str(name) for name in cl.list_display]
    return {
        "cl": cl,
        "headers": list(map(_header, result_headers(cl), names)),
        "rows": [{"pk": row.pk, "cells": _cells(cl, row)} for row in cl.result_list],
        "actions_row": context.get("actions_row"),
        "has_add_permission": cl.model_admin.has_add_permission(context["request"]),
    }


def _header(head: dict[str, Any], name: str) -> dict[str, Any]:
    if name == CHECKBOX:
        return {"text": TICK_ALL, "checkbox": True}
    return {"text": _capital(str(head["text"])), "url": head.get("url_primary", "")}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cells(cl: ChangeList, row: Model) -> SafeString:
    return format_html_join("", "{}", ((cell,) for cell in _each_cell(cl, row)))


def _each_cell(cl: ChangeList, row: Model) -> Iterator[SafeString]:
    is_linked = False
    for name in cl.list_display:
        if name == CHECKBOX:
            yield format_html(TICK, row.pk, row)
            continue
        text = _text(cl, row, str(name))
        if not is_linked and cl.list_display_links is not None:
            is_linked = True
            url = cl.url_for_result(row)
            yield format_html('<th scope="row"><a href="{}">{}</a></th>', url, text)
        else:
            yield format_html("<td>{}</td>", text)


def _text(cl: ChangeList, row: Model, name: str) -> Any:
    empty = cl.model_admin.get_empty_value_display()
    try:
        field, attribute, value = lookup_field(name, row, cl.model_admin)
    except ObjectDoesNotExist:
        return empty
    if value is None or value == "":
        return empty
    if kinds := getattr(attribute, "label", None):
        return render.badge(str(value), kinds.get(value, "") if isinstance(kinds, dict) else "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field is None or field.auto_created:
        return display_for_value(value, empty)
    return display_for_field(value, field, empty)
