"""The items that `core.http_poll` finds: those of a response that are new or have changed.

The cursor has the validators of the last response, for each of its items a digest of its key and
one of its content, and how many were new or changed. The key of an event has that number: an item
that changes back, or that goes and comes again, is another event.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpcore
import httpx
from django.conf import settings

from orchestrator.automation.polls import ITEM_NAMES, MOST_ITEMS
from orchestrator.automation.sensors.reports import MOST_AT_ONCE, Report
from orchestrator.core import expressions, key_references
from orchestrator.core.schemas import canonical
from workers.isolated import addresses, bodies
from workers.isolated.checked_connections import AddressRefused, Backend, Transport
from workers.sensors.lives import Failed

LARGEST_BYTES = 8_388_608
MOST_REDIRECTS = 5
KEY_CHARACTERS = 150
KEY_PREFIX = "item:"
"""Begins the keys of events: the server names the items, and could name one like Muster's own."""
Opener = Callable[[Mapping[str, Any]], Mapping[str, str]]
"""Takes headers with references to keys; returns the values."""
Note = Callable[[str], None]
"""Writes a line into the log of the poll."""


class HttpPoll:
    """The poll of one URL."""

    def __init__(
        self, trigger_id: int, parameters: Mapping[str, Any], open_keys: Opener, note: Note
    ) -> None:
        self.trigger_id, self.parameters = trigger_id, parameters
        self.open_keys, self.note = open_keys, note
        self.every_seconds: float = parameters.get("every_seconds", 60)
        self._has_noted = False

    def look(self, cursor: Mapping[str, Any]) -> Iterator[tuple[list[Report], Mapping[str, Any]]]:
        """Fetch it; yields what is new or changed. Raises Failed."""
        response = self._fetch(cursor)
        if response is None:
            return
        headers, body = response
        is_first = not cursor
        reports_nothing = is_first and self.parameters.get("existing", "ignore") == "ignore"
        seen: dict[str, str] = dict(cursor.get("seen", {}))
        now_seen: dict[str, str] = {}
        number = int(cursor.get("number", 0))
        found: list[Report] = []
        for item in self._items(body):
            key, digest = self._key(item), _digest(item)
            name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]
            if name in now_seen:
                # the first one counts: each would be a change of the other, at every look
                self._note_twice(key, is_other=now_seen[name] != digest)
                continue
            now_seen[name] = digest
            if seen.get(name) == digest:
                continue
            number += 1
            if not reports_nothing:
                found.append(self._report(item, key, f"{digest}:{number}", name in seen))
            if len(found) == MOST_AT_ONCE:
                # without validators: what is left must be fetched again if we die here
                yield found, {"seen": seen | now_seen, "number": number}
                found = []
        yield found, {"seen": now_seen, "number": number, **_validators(headers)}

    def _note_twice(self, key: str, *, is_other: bool) -> None:
        if is_other and not self._has_noted:
            self._has_noted = True
            self.note(f"item_key: several items have the key {key!r:.100}: the first one counts")

    def _report(self, item: Any, key: str, version: str, is_known: bool) -> Report:
        change = "changed" if is_known else "new"
        payload = {"item": item, "key": key, "change": change, "url": self.parameters["url"]}
        shown = key
        if len(key) > KEY_CHARACTERS:
            shown = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        return Report(
            trigger=self.trigger_id, payload=payload, key=f"{KEY_PREFIX}{shown}:{version}"
        )

    def _items(self, body: Any) -> list[Any]:
        pointer = self.parameters.get("items")
        if pointer is None:
            return [body]
        items = _at(body, pointer)
        if not isinstance(items, list):
            raise Failed(f"items: expected a list at {pointer!r}, found {type(items).__name__}")
        if len(items) > MOST_ITEMS:
            raise Failed(f"items: expected at most {MOST_ITEMS:,}, found {len(items):,}")
        return items

    def _key(self, item: Any) -> str:
        """The key of an item: what stays the same of it when it changes."""
        source = self.parameters.get("item_key")
        if not source:
            return _digest(item) if "items" in self.parameters else self.parameters["url"]
        try:
            expression = expressions.read(source, names=ITEM_NAMES)
            value = expression.value({"item": item}, expressions.Budget())
        except (expressions.InvalidExpression, expressions.CannotEvaluate) as error:
            raise Failed(f"item_key: {error}") from None
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    # --- the request

    def _fetch(self, cursor: Mapping[str, Any]) -> tuple[httpx.Headers, Any] | None:
        """The response as JSON, or as text; None if it is as it was. Raises Failed."""
        timeout_seconds = self.parameters.get("timeout_seconds", 20)
        allowed = addresses.networks(settings.MUSTER.http_allowed_networks)
        deadline = time.monotonic() + timeout_seconds
        backend = Backend(allowed=allowed, deadline=deadline)
        try:
            with httpx.Client(transport=Transport(backend), trust_env=False, timeout=None) as http:  # noqa: S113 - the backend has a deadline
                return self._answer(http, self._headers(cursor))
        except (httpx.TimeoutException, httpcore.TimeoutException):
            raise Failed(f"no answer within {timeout_seconds:g} s") from None
        except AddressRefused as error:
            raise Failed(str(error)) from None
        except httpcore.LocalProtocolError:
            # its text quotes the header, with the key in it
            raise Failed("the request failed: HTTP allows none of these headers") from None
        except (
            httpx.HTTPError, httpx.InvalidURL, httpcore.NetworkError, httpcore.ProtocolError,
            httpcore.UnsupportedProtocol, OSError,
        ) as error:  # fmt: skip
            raise Failed(f"the request failed: {str(error) or repr(error)}") from None

    def _answer(
        self, http: httpx.Client, headers: Mapping[str, str]
    ) -> tuple[httpx.Headers, Any] | None:
        url = httpx.URL(self.parameters["url"])
        own = dict(headers)
        for _ in range(MOST_REDIRECTS + 1):
            with http.stream("GET", url, headers=own) as response:
                if response.next_request is None:
                    return _content(response)
                following = response.next_request.url
                if _origin(following) != _origin(url):
                    own = {}  # they may have keys in them
                url = following
        raise Failed(f"it redirects more than {MOST_REDIRECTS} times")

    def _headers(self, cursor: Mapping[str, Any]) -> dict[str, str]:
        given = self.parameters.get("headers", {})
        headers = dict(key_references.replaced(given, self.open_keys(given)))
        for name, value in headers.items():
            if not _is_value(value):
                raise Failed(f"header {name}: its key has characters that no header may have")
        headers = {
            "User-Agent": "Muster",
            "Accept": "application/json, */*;q=0.5",
            "Accept-Encoding": bodies.ACCEPTED,
            **headers,
        }
        if "etag" in cursor:
            headers["If-None-Match"] = cursor["etag"]
        if "last_modified" in cursor:
            headers["If-Modified-Since"] = cursor["last_modified"]
        return headers


def _content(response: httpx.Response) -> tuple[httpx.Headers, Any] | None:
    if response.status_code == httpx.codes.NOT_MODIFIED:
        return None
    if not response.is_success:
        raise Failed(f"the server answered {response.status_code} {response.reason_phrase}".strip())
    try:
        body = bodies.read(response, LARGEST_BYTES)
    except bodies.TooLarge:
        raise Failed(f"the response is larger than {LARGEST_BYTES:,} bytes") from None
    try:
        return response.headers, json.loads(body)
    except (ValueError, RecursionError):
        return response.headers, body.decode(response.encoding or "utf-8", "replace")


def _validators(headers: httpx.Headers) -> dict[str, str]:
    """The validators with which the next request asks whether anything has changed."""
    named = {"etag": headers.get("etag"), "last_modified": headers.get("last-modified")}
    return {
        name: value
        for name, value in named.items()
        if value and len(value) <= 1_000 and _is_value(value)
    }


def _is_value(text: str) -> bool:
    """Return True if a header may have this value."""
    return text.isascii() and text.isprintable() and text == text.strip()


def _digest(item: Any) -> str:
    text = str(canonical.key([item]))  # in a list: a text would be its own key
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def _at(body: Any, pointer: str) -> Any:
    """The value at a JSON pointer. Raises Failed."""
    value = body
    for part in pointer.split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            raise Failed(f"items: the response has nothing at {pointer!r}") from None
    return value


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
