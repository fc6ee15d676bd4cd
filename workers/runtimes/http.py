"""HTTP actions: one request, with the action's parameters filled in.

The entry point is the URL; `method`, `headers`, `query`, `body` and `redirects` are options. What
is reached are public addresses, and those that `MUSTER_HTTP_ALLOWED_NETWORKS` allows; that is asked
for each connection, redirects included, of the address that is connected to (see `pinned`).
Proxies of the worker's environment are not used: they would reach what the worker may not.

A status of 2xx completes the execution with status, headers and body; any other fails it with the
same. The body is JSON if it says so, text otherwise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpcore
import httpx
from django.conf import settings

from orchestrator.core import placeholders
from orchestrator.core.reasons import Reason
from workers.runtimes import addresses, limits, results
from workers.runtimes.checked_connections import AddressRefused, Backend, Transport
from workers.runtimes.protocol import Call, Outcome, completed, failed, timed_out

DEFAULT_REDIRECTS = 5
EXCERPT_CHARACTERS = 2_000
MIB = 1_048_576
CHUNK_BYTES = 65_536
USER_AGENT = "Muster"


class _TooLarge(Exception):
    pass


def why_not() -> str:
    return ""


def run(call: Call) -> Outcome:
    started = time.monotonic()
    try:
        with limits.limit(
            limits.name_of(call.execution_id, call.attempt),
            timeout_seconds=call.timeout_seconds,
            again_seconds=call.cancel_grace_seconds,
        ):
            outcome = _run(call, deadline=started + call.timeout_seconds)
    except (limits.TimeLimitReached, httpx.TimeoutException, httpcore.TimeoutException):
        outcome = timed_out(call)
    except limits.Interrupted:
        outcome = failed(
            "The request was interrupted.", by="worker", reason=Reason.CANCELLED_RUNNING
        )
    except AddressRefused as error:
        outcome = failed(results.text(str(error)), reason=Reason.ADDRESS_REFUSED)
    except placeholders.CannotExpand as error:
        outcome = failed(results.text(str(error)))
    except httpx.TooManyRedirects:
        outcome = failed("The server redirected more often than `redirects` allows.")
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
        OSError,
        ValueError,
    ) as error:
        outcome = failed(results.text(f"The request failed: {str(error) or repr(error)}."))
    duration_seconds = round(time.monotonic() - started, 3)
    return Outcome(
        outcome.event, outcome.reason, outcome.result | {"duration_seconds": duration_seconds}
    )


def _run(call: Call, *, deadline: float) -> Outcome:
    options = call.options
    redirects = options.get("redirects", DEFAULT_REDIRECTS)
    most_bytes = min(
        int(call.limits.get("output_mb", settings.MUSTER.action_output_mb) * MIB),
        results.LIMIT_BYTES // 2,  # it must fit into a result, with its escapes
    )
    backend = Backend(
        allowed=addresses.networks(settings.MUSTER.http_allowed_networks), deadline=deadline
    )
    with httpx.Client(
        transport=Transport(backend),
        trust_env=False,
        timeout=None,  # noqa: S113 - the backend has the one that matters
        headers={"User-Agent": USER_AGENT},
    ) as client:
        response = _send(client, _request(client, call), redirects)
        try:
            return _outcome(response, _read(response, most_bytes))
        except _TooLarge:
            return failed(
                f"The response is larger than {most_bytes:,} bytes. An action that fetches files "
                "writes them where they belong, and returns where that is.",
                reason=Reason.OUTPUT_LIMIT_EXCEEDED,
                status=response.status_code,
            )
        finally:
            response.close()


def _request(client: httpx.Client, call: Call) -> httpx.Request:
    request = client.build_request(
        call.options.get("method", "GET"),
        url_of(str(call.entry_point), call.parameters),
        headers=_texts(call.options.get("headers", {}), call.parameters),
        **_content(call.options, call.parameters),
    )
    if query := _texts(call.options.get("query", {}), call.parameters):
        request.url = request.url.copy_merge_params(query)
    return request


def _send(client: httpx.Client, request: httpx.Request, redirects: int) -> httpx.Response:
    """The last response, its body unread. Raises TooManyRedirects.

    Not with the client's own redirects: it would read the body of each into memory, and send the
    action's headers, keys among them, to whatever server it was redirected to.
    """
    own = request.headers.keys() - client.headers.keys()
    history: list[httpx.Response] = []
    while True:
        response = client.send(request, stream=True)
        following = response.next_request
        if following is None or redirects == 0:
            response.history = history
            return response
        response.close()
        history.append(response)
        if len(history) > redirects:
            raise httpx.TooManyRedirects("more redirects than allowed", request=request)
        if _origin(following.url) != _origin(request.url):
            for name in own - {"content-type", "content-length", "transfer-encoding", "host"}:
                following.headers.pop(name, None)
        request = following


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def url_of(template: str, parameters: Mapping[str, Any]) -> str:
    """The URL with its parameters; each is one part of it, and cannot become two. One that is
    nothing but a parameter is that parameter. Raises CannotExpand."""
    if placeholders.whole(template):
        return placeholders.expand([template], parameters)[0]
    return placeholders.fill(template, parameters, escape=_part_of_url)


def _part_of_url(text: str) -> str:
    if text in (".", ".."):
        raise placeholders.CannotExpand(f"{text!r} as a part of a URL would lead elsewhere.")
    return quote(text, safe="")


def _texts(templates: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, str]:
    filled = {name: fill(item, parameters) for name, item in templates.items()}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in filled.items()
        if value is not None
    }


def _content(options: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    if "body" not in options:
        return {}
    body = fill(options["body"], parameters)
    return {"content": body} if isinstance(body, str) else {"json": body}


def fill(template: Any, parameters: Mapping[str, Any]) -> Any:
    """The template with its parameters. A text that is nothing but a parameter becomes its value,
    of whatever type, and None if it is not given: as an entry of a mapping it is left out then.
    Raises CannotExpand."""
    if isinstance(template, Mapping):
        filled = {name: (item, fill(item, parameters)) for name, item in template.items()}
        return {
            name: value
            for name, (item, value) in filled.items()
            if not (isinstance(item, str) and value is None)
        }
    if isinstance(template, list):
        return [fill(item, parameters) for item in template]
    if not isinstance(template, str):
        return template
    if name := placeholders.whole(template):
        return parameters.get(name)
    return placeholders.fill(template, parameters)


def _read(response: httpx.Response, most_bytes: int) -> bytes:
    """The body, unpacked. Chunk by chunk: what is small when packed may be large."""
    body = bytearray()
    for chunk in response.iter_bytes(CHUNK_BYTES):
        body += chunk
        if len(body) > most_bytes:
            raise _TooLarge
    return bytes(body)


def _outcome(response: httpx.Response, body: bytes) -> Outcome:
    told: dict[str, Any] = {
        "status": response.status_code,
        "url": results.text(str(response.url)),
        "headers": {name: results.text(value) for name, value in response.headers.items()},
        "redirects": len(response.history),
    }
    text = results.text(body.decode(response.encoding or "utf-8", "replace"))
    if not response.is_success:
        return failed(
            f"The server answered {response.status_code} {response.reason_phrase}.".replace(
                " .", "."
            ),
            **told,
            body=text[:EXCERPT_CHARACTERS],
            body_truncated=len(text) > EXCERPT_CHARACTERS,
        )
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and (media_type == "application/json" or media_type.endswith("+json")):
        try:
            return completed(told | {"body": results.from_json(body)})
        except results.NotStorable as error:
            return failed(str(error), **told, body=text[:EXCERPT_CHARACTERS])
    return completed(told | {"body": text})
