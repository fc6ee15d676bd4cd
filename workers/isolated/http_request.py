"""One HTTP request, as `workers.runtimes.http` asks for it.

Only public addresses can be reached, and those of the given networks; the address of each
connection is checked, redirects included (see `checked_connections`). Proxies of the environment
are not used: they could reach addresses that are not allowed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpcore
import httpx

from orchestrator.core import placeholders
from workers import hiding
from workers.isolated import addresses, bodies, results
from workers.isolated.checked_connections import AddressRefused, Backend, Transport

DEFAULT_REDIRECTS = 5
EXCERPT_CHARACTERS = 2_000
USER_AGENT = "Muster"
NOT_KEPT = frozenset({"set-cookie", "set-cookie2"})
"""Headers of a response that open a session with its server: they are no part of a result."""


def send(
    *,
    url: str,
    options: Mapping[str, Any],
    parameters: Mapping[str, Any],
    allowed_networks: str,
    most_bytes: int,
    timeout_seconds: float,
) -> dict[str, Any]:
    """Make the request; returns `end` (`completed`, `failed`, `timed_out`, `address_refused` or
    `too_large`), `message` if it did not complete, and `details`."""
    deadline = time.monotonic() + timeout_seconds
    backend = Backend(allowed=addresses.networks(allowed_networks), deadline=deadline)
    try:
        return _send_and_read(backend, url, options, parameters, most_bytes)
    except (httpx.TimeoutException, httpcore.TimeoutException):
        return _end("timed_out")
    except AddressRefused as error:
        return _end("address_refused", str(error))
    except placeholders.CannotExpand as error:
        return _end("failed", str(error))
    except httpx.TooManyRedirects:
        return _end("failed", "The server redirected more often than `redirects` allows.")
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
        OSError,
        ValueError,
    ) as error:
        why = str(error).rstrip(".") or repr(error)
        return _end("failed", f"The request failed: {why}.")


def _end(end: str, message: str = "", **details: Any) -> dict[str, Any]:
    return {"end": end, "message": results.text(message), "details": details}


def _send_and_read(
    backend: Backend,
    url: str,
    options: Mapping[str, Any],
    parameters: Mapping[str, Any],
    most_bytes: int,
) -> dict[str, Any]:
    with httpx.Client(
        transport=Transport(backend),
        trust_env=False,
        timeout=None,  # noqa: S113 - the backend enforces the deadline
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": bodies.ACCEPTED},
    ) as client:
        redirects = options.get("redirects", DEFAULT_REDIRECTS)
        response = _send(client, _request(client, url, options, parameters), redirects)
        try:
            return _outcome(response, bodies.read(response, most_bytes))
        except bodies.TooLarge:
            return _end(
                "too_large",
                f"The response is larger than {most_bytes:,} bytes. An action that fetches files "
                "writes them where they belong, and returns where that is.",
                status=response.status_code,
            )
        finally:
            response.close()


def _request(
    client: httpx.Client, url: str, options: Mapping[str, Any], parameters: Mapping[str, Any]
) -> httpx.Request:
    request = client.build_request(
        options.get("method", "GET"),
        url_of(url, parameters),
        headers=_texts(options.get("headers", {}), parameters),
        **_content(options, parameters),
    )
    if query := _texts(options.get("query", {}), parameters):
        request.url = request.url.copy_merge_params(query)
    return request


def _send(client: httpx.Client, request: httpx.Request, redirects: int) -> httpx.Response:
    """Send the request and follow redirects; returns the last response, its body unread. Raises
    TooManyRedirects.

    Does not use the client's own redirects: it would read the body of each into memory, and send
    the action's headers, including keys, to any server it was redirected to.
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
    """Fill in the parameters of a URL; each is one part of it, and cannot become two. A URL that is
    a single placeholder becomes that parameter. Raises CannotExpand."""
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
    """Fill in the parameters of a template. A text that is a single placeholder becomes the value,
    of any type, and None if it is not given: an entry of a mapping is left out then. Raises
    CannotExpand."""
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


def _outcome(response: httpx.Response, body: bytes) -> dict[str, Any]:
    details: dict[str, Any] = {
        "status": response.status_code,
        "url": results.text(str(response.url)),
        "headers": {
            name: results.text(value)
            for name, value in response.headers.items()
            if name not in NOT_KEPT
        },
        "redirects": len(response.history),
    }
    text = hiding.hidden(results.text(body.decode(response.encoding or "utf-8", "replace")))
    if not response.is_success:
        return _end(
            "failed",
            f"The server answered {response.status_code} {response.reason_phrase}.".replace(
                " .", "."
            ),
            **details,
            body=text[:EXCERPT_CHARACTERS],
            body_truncated=len(text) > EXCERPT_CHARACTERS,
        )
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and (media_type == "application/json" or media_type.endswith("+json")):
        try:
            return _end("completed", **details, body=results.from_json(body))
        except results.NotStorable as error:
            return _end("failed", str(error), **details, body=text[:EXCERPT_CHARACTERS])
    return _end("completed", **details, body=text)
