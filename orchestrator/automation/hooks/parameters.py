"""The parameters of a hook: its path, its profile, and what that needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.automation.hooks import profiles, texts
from orchestrator.automation.hooks.schemes import ALGORITHMS, ENCODINGS
from orchestrator.automation.problems import Problem
from orchestrator.core import key_references
from orchestrator.core.key_references import KEY

WEBHOOK = "core.webhook"
"""The trigger type."""

LONGEST_PATH = 100
PATH = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
HEADER = re.compile(r"[A-Za-z0-9-]{1,60}")

MOST_SECRETS = 2
"""One that is valid, and the next one or the last."""

NEVER_KEPT = re.compile(r"authorization|cookie|signature|secret|token|password|api-?key")
"""Part of the name of a header that no event has, as it may be a secret."""

USER = "user/"
"""Begins references to the keys of a person, who is not there when a hook is called."""

_HEADER_NAME = {"type": "string", "pattern": f"^{HEADER.pattern}$"}

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path", "profile"],
    "properties": {
        "path": {
            "type": "string",
            "maxLength": LONGEST_PATH,
            "pattern": f"^{PATH.pattern}$",
            "description": "What follows /api/v1/hooks/ in its address.",
        },
        "profile": {"enum": list(profiles.NAMES), "description": "Who signs, and how."},
        "secrets": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_SECRETS,
            "items": {
                "type": "object",
                "required": [KEY],
                "additionalProperties": False,
                "properties": {KEY: {"type": "string"}},
            },
            "description": 'Keys, such as {"$key": "shop/github"}; a signature of either is valid.',
        },
        "hmac": {
            "type": "object",
            "additionalProperties": False,
            "required": ["header"],
            "properties": {
                "header": {**_HEADER_NAME, "description": "Has the signature."},
                "algorithm": {"enum": list(ALGORITHMS), "default": "sha256"},
                "encoding": {"enum": list(ENCODINGS), "default": "hex"},
                "prefix": {"type": "string", "maxLength": 40, "default": ""},
                "signed": {"type": "string", "maxLength": 100, "default": "{body}"},
                "timestamp_header": _HEADER_NAME,
                "id_header": _HEADER_NAME,
            },
            "description": "Of the profile hmac: how the sender signs.",
        },
        "headers": {
            "type": "array",
            "maxItems": 20,
            "items": _HEADER_NAME,
            "description": "Headers that events have besides those of the profile.",
        },
        "schema": {"type": "object", "description": "JSON Schema of the body."},
        "keep_invalid": {
            "type": "boolean",
            "default": False,
            "description": "Record a body that does not fit the schema, and ask no rule.",
        },
    },
}

PAYLOAD: Mapping[str, Any] = {
    "type": "object",
    "required": ["body", "headers"],
    "properties": {
        "body": {"description": "What was sent: JSON, or the fields of a form; null if nothing."},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def problems(parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with parameters that fit `SCHEMA`."""
    profile = parameters["profile"]
    yield from _secret_problems(profile, references(parameters))
    template = parameters.get("hmac")
    yield from _template_problems(profile, template)
    signature = (template or {}).get("header", "").lower()
    for number, name in enumerate(parameters.get("headers", ())):
        if name.lower() == signature or NEVER_KEPT.search(name.lower()):
            yield Problem(("headers", number), f"{name} may be a secret, which no event has")


def references(parameters: Mapping[str, Any]) -> list[str]:
    """The keys with the secrets of a hook."""
    return [each[KEY] for each in parameters.get("secrets", ())]


def kept_headers(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The names, in lower case, of the headers that events have."""
    scheme = profiles.of(parameters)
    of_profile = scheme.kept if scheme is not None else frozenset()
    named = (name.lower() for name in parameters.get("headers", ()))
    return profiles.ALWAYS_KEPT | of_profile | frozenset(named)


def _secret_problems(profile: str, given: Sequence[str]) -> Iterator[Problem]:
    if profile == profiles.TOKEN:
        if given:
            yield Problem(("secrets",), "the profile token has none: callers bring a token")
    elif not given:
        yield Problem(("secrets",), f"the profile {profile} needs the key of a secret")
    for number, reference in enumerate(given):
        where = ("secrets", number, KEY)
        if key_references.REFERENCE.fullmatch(reference) is None:
            yield Problem(where, f"expected {key_references.EXPECTED}")
        elif reference.startswith(USER):
            yield Problem(where, "expected a key of a pack, or of the installation")


def _template_problems(profile: str, template: Mapping[str, Any] | None) -> Iterator[Problem]:
    if profile != profiles.HMAC:
        if template is not None:
            yield Problem(("hmac",), f"the profile {profile} says itself how it is signed")
        return
    if template is None:
        yield Problem(("hmac",), "the profile hmac needs the header, and what is signed")
        return
    for name in ("timestamp_header", "id_header"):
        if template.get(name, "").lower() == template["header"].lower():
            yield Problem(("hmac", name), f"{template[name]} has the signature")
    # a time is a number that was signed just now, whatever its header is called
    if NEVER_KEPT.search(id_header := template.get("id_header", "").lower()):
        message = f"{id_header} may be a secret, and the id is part of the event"
        yield Problem(("hmac", "id_header"), message)
    signed = template.get("signed", "{body}")
    for fault in texts.faults(signed):
        yield Problem(("hmac", "signed"), fault)
    places = texts.places_in(signed)
    for place, name in ((texts.TIMESTAMP, "timestamp_header"), (texts.ID, "id_header")):
        if place in places and not template.get(name):
            yield Problem(("hmac", name), f"is required, as {{{place}}} is signed")
    if template.get("timestamp_header") and texts.TIMESTAMP not in places:
        expected = "expected {timestamp} in it: a time that is not signed proves nothing"
        yield Problem(("hmac", "signed"), expected)
    if not template.get("timestamp_header") and not template.get("id_header"):
        yield Problem(
            ("hmac",),
            "needs a timestamp_header or an id_header: without both, whoever has recorded a "
            "delivery could send it again and again",
        )
