"""Grants: roles and permissions, with the part of the installation in which they hold."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from orchestrator.core import frame, selectors, spelling
from orchestrator.core.authority import Reach, Scope
from orchestrator.core.errors import MusterError
from orchestrator.core.frame import ADMIN, ROLES, Permission

PATTERN = re.compile(r"[a-z0-9_*-]{1,60}")
MOST_NAMES = 50


class InvalidGrant(MusterError):
    """The grant names something that is not known, or has a scope that is not possible."""


@dataclass(frozen=True)
class Given:
    """A role or a permission, and where it holds."""

    gives: str
    scope: Scope = field(default_factory=Scope)

    def __str__(self) -> str:
        return self.gives if self.scope.is_everything else f"{self.gives} in {shown(self.scope)}"

    def as_json(self) -> dict[str, Any]:
        """As tokens store it."""
        return {"gives": self.gives, "scope": scope_as_json(self.scope)}


EVERYTHING = (Given(ADMIN),)

Layers = tuple[tuple[Given, ...], ...]


@cache
def permissions() -> dict[str, Permission]:
    """Every permission that the installed apps bring, by name."""
    return {each.name: each for each in frame.collect(lambda app: app.permissions)}


@cache
def permissions_of(gives: str) -> frozenset[str]:
    """The permissions of a role, or this one."""
    if gives == ADMIN:
        return frozenset(permissions())
    if gives in ROLES:
        return frozenset(name for name, each in permissions().items() if gives in each.roles)
    return frozenset({gives})


@lru_cache(maxsize=4096)
def reach_of(layers: Layers, permission: str) -> Reach:
    """The places where a permission holds for who has these grants: a pure function of them."""
    return Reach(
        tuple(
            tuple(given.scope for given in layer if permission in permissions_of(given.gives))
            for layer in layers
        )
    )


@lru_cache(maxsize=4096)
def read(gives: str, scope: str) -> Given:
    """A grant as its columns hold it; `scope` is JSON."""
    return of_json({"gives": gives, "scope": json.loads(scope)})


@lru_cache(maxsize=4096)
def read_all(text: str) -> tuple[Given, ...]:
    """The grants that the column of a token holds."""
    return tuple(map(of_json, json.loads(text)))


def of_json(values: Mapping[str, Any]) -> Given:
    """A grant as it is stored."""
    scope: Mapping[str, Any] = values.get("scope") or {}
    return Given(
        values["gives"],
        Scope(
            packs=tuple(scope.get("packs", ())),
            namespaces=tuple(scope.get("namespaces", ())),
            labels=tuple(sorted(scope.get("labels", {}).items())),
        ),
    )


def scope_as_json(scope: Scope) -> dict[str, Any]:
    """The scope, without what it does not limit."""
    values = {
        "packs": list(scope.packs),
        "namespaces": list(scope.namespaces),
        "labels": dict(scope.labels),
    }
    return {name: value for name, value in values.items() if value}


def shown(scope: Scope) -> str:
    """The scope in words: `packs billing-*; workers with zone=b`."""
    parts = []
    for noun, names in (("pack", scope.packs), ("namespace", scope.namespaces)):
        if names:
            parts.append(f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}")
    if scope.labels:
        parts.append(f"workers with {', '.join(f'{key}={value}' for key, value in scope.labels)}")
    return "; ".join(parts) or "everything"


def check(
    gives: str,
    *,
    packs: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Given:
    """The grant, checked. Raises InvalidGrant."""
    known = [*ROLES, *permissions()]
    if gives not in known:
        near = spelling.near(gives, known)
        hint = f"did you mean {near}?" if near else "see: manage.py access roles"
        raise InvalidGrant(f"Expected a role or a permission, found {gives!r:.80}; {hint}")
    for noun, names in (("pack", packs), ("namespace", namespaces)):
        _check_names(noun, names)
    for key, message in selectors.problems(labels or {}):
        raise InvalidGrant(f"label {key}: {message}" if key else f"labels: {message}")
    about = {one for name in permissions_of(gives) for one in permissions()[name].about}
    given = {frame.PACKS: packs, frame.NAMESPACES: namespaces, frame.WORKERS: labels}
    for noun, value in given.items():
        if value and noun not in about:
            raise InvalidGrant(f"{gives} is not about {noun}: leave them out")
    named = any(given.values())
    if named and about <= {frame.INSTALLATION, frame.OWN}:
        raise InvalidGrant(f"{gives} is about the whole installation: it has no scope")
    scope = Scope(tuple(packs), tuple(namespaces), tuple(sorted((labels or {}).items())))
    return Given(gives, scope)


def _check_names(noun: str, names: Sequence[str]) -> None:
    if len(names) > MOST_NAMES:
        raise InvalidGrant(f"Expected at most {MOST_NAMES} {noun}s, found {len(names)}")
    for name in names:
        if not PATTERN.fullmatch(name):
            raise InvalidGrant(
                f"{noun}: expected a-z, 0-9, _, - and *, such as billing-*, found {name!r:.80}"
            )


def is_within(scope: Scope, reach: Reach) -> bool:
    """Return True if the reach has all of the scope: everywhere, or in a scope that names as
    much."""
    return all(any(_contains(outer, scope) for outer in layer) for layer in reach.layers)


def _contains(outer: Scope, inner: Scope) -> bool:
    if outer.is_everything:
        return True
    if inner.is_everything:
        return False
    return (
        _names_contain(outer.packs, inner.packs)
        and _names_contain(outer.namespaces, inner.namespaces)
        and (not inner.labels or (bool(outer.labels) and set(outer.labels) <= set(inner.labels)))
    )


def _names_contain(outer: Sequence[str], inner: Sequence[str]) -> bool:
    """Each of the inner is one of the outer, or less: a `*` matches another `*`, too."""
    return all(any(fnmatch.fnmatchcase(name, one) for one in outer) for name in inner)
