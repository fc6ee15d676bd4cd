"""The API keeps to its document, whatever a client makes of it.

Each operation of the OpenAPI document is asked many times, with requests that fit its schema and
with requests that do not. No answer is a 5xx, each is one that the document has, body and headers
included, and what does not fit is refused.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from tests.scenarios.installation import Installation

EXAMPLES = 500 if os.environ.get("CHAOS_NIGHTLY") else 6
"""For each operation, in each mode."""

HOOK: dict[str, Any] = {
    "ref": "scenario.sent",
    "trigger_type": "core.webhook",
    "trigger_parameters": {"path": "fuzzed", "profile": "token"},
    "action_ref": "core.echo",
}
"""Takes whatever a caller with a token sends."""

REAL_SHARE = 0.6
"""So many of the paths name something that there is."""

QUIETLY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

for archive in ("application/gzip", "application/x-gzip", "application/x-tar", "application/zip"):
    schemathesis.serializer.alias(archive, "application/octet-stream")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600 if EXAMPLES > 100 else 1_200)]


def test_every_operation_keeps_to_its_document(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    url = muster.serve()
    token = muster.token("fuzz")
    _fill(muster)
    muster.ready()
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        document = session.get(f"{url}/api/v1/openapi.json").json()
        known = _ids_of(document, lambda path: session.get(url + path).json())
        known |= {path: ["fuzzed"] for path in document["paths"] if path.endswith("/hooks/{path}")}
        own = _own(lambda path: session.get(url + path).json())
        asked = _ask_all(document, known, own, url, session)

    assert {operation for operation, _ in asked} >= {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert asked["POST /api/v1/hooks/{path}", 202], "a hook takes what it is sent"
    assert sum(asked.values()) >= EXAMPLES * len(document["paths"])
    assert not [status for _, status in asked if status >= 500], asked
    assert requests.get(f"{url}/api/v1/health/ready", timeout=60).status_code == 200


def _fill(muster: Installation) -> None:
    """Something of each kind, so that listings are not empty and ids are not all unknown."""
    client = muster.client
    for name in ("w1", "w2"):
        client.call("enlist", name=name)
    ids = [muster.submit("core.echo", {"text": str(number)}) for number in range(6)]
    for id in ids[:2]:
        muster.cancel(id)
    muster.token("decoy", "viewer")
    queue = client.call("queue_names")["dead_letters"]
    client.call("declare_worker_queues", id=1)
    for number in range(3):
        client.call("publish", body=b"no task %d" % number, queue=queue)
    client.call("drain")
    client.call("install_rules", news=[HOOK])


def _ids_of(document: dict[str, Any], get: Callable[[str], Any]) -> dict[str, list[str]]:
    """For each path with one parameter, what the listing above it has: path -> values."""
    known = {}
    for path in document["paths"]:
        above, brace, rest = path.partition("/{")
        while brace and "get" not in document["paths"].get(above, {}) and above:
            above = above.rpartition("/")[0]
        if brace and above:
            name = rest.partition("}")[0]
            items = [item.get(name, item.get("id")) for item in get(above).get("items", ())]
            known[path] = [str(item) for item in items if item is not None]
    return known


def _own(get: Callable[[str], Any]) -> dict[str, str]:
    """The ids of the caller's own token and identity, by their names in paths: whoever ends them
    asks nothing more."""
    return {
        name: str(next(r["id"] for r in get(f"/api/v1/{noun}")["items"] if r["name"] == "fuzz"))
        for name, noun in (("token_id", "tokens"), ("identity_id", "identities"))
    }


def _ask_all(
    document: dict[str, Any],
    known: dict[str, list[str]],
    own: dict[str, str],
    url: str,
    session: requests.Session,
) -> Counter[tuple[str, int]]:
    """How often each operation gave which status. Raises what does not keep to the document."""
    asked: Counter[tuple[str, int]] = Counter()
    rng = random.Random(0)

    def ask(case: Any) -> None:
        if case.meta.generation.mode is GenerationMode.POSITIVE:
            _name_what_there_is(case, known.get(case.path, []), rng)
        for name, value in own.items():
            if str((case.path_parameters or {}).get(name)) == value:
                case.path_parameters[name] = 2**31
        answer = case.call(base_url=url, session=session)
        asked[case.operation.label, answer.status_code] += 1
        # that a request fits its schema does not say that what it names exists
        case.validate_response(answer, excluded_checks=[checks.positive_data_acceptance])

    results = schemathesis.openapi.from_dict(document).get_all_operations()
    operations: list[Any] = [result.ok() for result in results]  # type: ignore[union-attr]
    # the hook first: others end its rule
    for operation in sorted(operations, key=lambda each: "/hooks/" not in each.path):
        takes_nothing = not list(operation.iter_parameters()) and not operation.body
        for mode in GenerationMode:
            if mode is GenerationMode.POSITIVE or not takes_nothing:
                # each with the same requests every time
                seed(0)(QUIETLY(given(operation.as_strategy(generation_mode=mode))(ask)))()
    return asked


def _name_what_there_is(case: Any, ids: list[str], rng: random.Random) -> None:
    if ids and len(case.path_parameters) == 1 and rng.random() < REAL_SHARE:
        [name] = case.path_parameters
        case.path_parameters[name] = rng.choice(ids)
    if not isinstance(case.body, dict):
        return
    for new in [case.body, *(case.body.get("executions") or [])]:
        if isinstance(new, dict) and "action_ref" in new and rng.random() < REAL_SHARE:
            new |= {"action_ref": "core.echo", "parameters": {"text": "x"}}
            new.pop("worker_id", None)
