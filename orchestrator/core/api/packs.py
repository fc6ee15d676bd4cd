"""Packs: installed from an archive, listed with their releases, removed."""

from __future__ import annotations

from typing import Annotated, Any

from django.conf import settings
from django.http import HttpResponse
from ninja import Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import authority, cursors, packs
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.pages import Text
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Place
from orchestrator.core.executions import removal
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Pack, Release
from orchestrator.core.packs import archives, releases
from orchestrator.core.shown import packs as shown
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.packs import PackDetail, PackSummary, ReleaseOut

router = Router(tags=["packs"])

ARCHIVES = ("application/gzip", "application/x-gzip", "application/x-tar", "application/zip")

ARCHIVE = {"schema": {"type": "string", "format": "binary"}}


class PackPage(pages.Page):
    """Packs, sorted by name."""

    items: list[PackSummary]


class ReleasePage(pages.Page):
    """Releases, the newest first."""

    items: list[ReleaseOut]


class InstallQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    accept_breaking: bool = Field(
        False, description="Disable rules and templates of other packs that would break."
    )


class RemoveQuery(InstallQuery):
    drain: bool = Field(False, description="Refuse new requests; ask again until it answers 200.")
    cancel: bool = Field(False, description="Refuse new requests, and cancel what is open.")


class Installed(Shown):
    """The changes that an installation made, by refs."""

    pack: str
    version: str
    release: str
    created: list[str]
    updated: list[str]
    unchanged: list[str]
    disabled: list[str]
    broken: list[str] = Field(description="Disabled in other packs, as it would have broken.")


class RemovedOut(Shown):
    """The content that was removed, or what the removal waits for."""

    pack: str
    version: str
    is_removed: bool
    actions: list[str]
    disabled: list[str]
    open: int = Field(description="Executions and tasks that still need the pack.")
    waits_for: list[str] = Field(description="The oldest of these.")


@router.get("", auth=needs("actions.read"), response=documented(422, _200=PackPage))
def list_packs(request: AuthenticatedRequest, query: Query[pages.PageQuery]) -> HttpResponse:
    """Packs, sorted by name."""
    refuse_unknown_parameters(request, pages.PageQuery)
    visible = Pack.objects.installed().visible_to(request.auth.principal).select_related("release")
    rows, cursor = pages.by_name(visible, query, field="name")
    return reply(
        PackPage(
            items=[shown.summary(row) for row in rows],
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.post(
    "",
    auth=needs("packs.install"),
    response=documented(409, _201=Installed),
    openapi_extra={"requestBody": {"required": True, "content": dict.fromkeys(ARCHIVES, ARCHIVE)}},
)
def install_pack(request: AuthenticatedRequest, query: Query[InstallQuery]) -> HttpResponse:
    """Install a pack, or a release of one: the body is a .tar, .tar.gz or .zip of its folder."""
    refuse_unknown_parameters(request, InstallQuery)
    try:
        content = archives.read_archive(_body(request), name="archive")
        # the code of a pack must not run as the API, and nobody waits here for pip
        may_import = bool(settings.MUSTER.action_user)
        with releases.loaded(
            content, name="archive", may_import=may_import, may_install=False
        ) as definition:
            report = packs.install(
                definition,
                content=content,
                accepts_breaking=query.accept_breaking,
                now=request.auth.now,
                principal=request.auth.principal,
            )
    except (packs.InvalidPack, packs.NotPackable) as error:
        raise _not_valid([str(problem) for problem in error.problems]) from None
    except packs.RefTaken as error:
        raise _not_valid([str(error)]) from None
    return reply(Installed.model_validate(report), status=201)


@router.get("/{name}", auth=needs("actions.read"), response=documented(404, _200=PackDetail))
def get_pack(request: AuthenticatedRequest, name: Annotated[Text, Path()]) -> HttpResponse:
    """One pack, with its actions."""
    return reply(shown.detail(_visible(request, name)))


@router.get(
    "/{name}/releases", auth=needs("actions.read"), response=documented(404, 422, _200=ReleasePage)
)
def list_releases(
    request: AuthenticatedRequest, name: Annotated[Text, Path()], query: Query[pages.PageQuery]
) -> HttpResponse:
    """The releases of a pack that there were, also of one that was removed, the newest first."""
    refuse_unknown_parameters(request, pages.PageQuery)
    pack = Pack.objects.filter(name=name).first()
    if pack is None or not authority.may(
        request.auth.principal, "actions.read", Place(PACKS, pack.name)
    ):
        raise _unknown(name)
    rows, cursor = pages.newest_first(
        Release.objects.filter(pack=pack).select_related("pack"), query, key=cursors.whole_number
    )
    return reply(
        ReleasePage(
            items=[shown.release(row) for row in rows],
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.delete(
    "/{name}",
    auth=needs("packs.install"),
    response=documented(404, 409, 422, _200=RemovedOut, _202=RemovedOut),
)
def remove_pack(
    request: AuthenticatedRequest, name: Annotated[Text, Path()], query: Query[RemoveQuery]
) -> HttpResponse:
    """Remove a pack. 409 while something open needs it; with `drain` or `cancel` 202 until then."""
    refuse_unknown_parameters(request, RemoveQuery)
    pack = _visible(request, name, "packs.install")
    caller = request.auth
    asked: dict[str, Any] = {"now": caller.now, "principal": caller.principal}
    if query.drain or query.cancel:
        removal.begin(name, **asked, accepts_breaking=query.accept_breaking, cancels=query.cancel)
        if query.cancel:
            removal.cancel(name, by=caller.name, **asked)
        if (work := removal.open_work(name, seen_by=caller.principal)).total:
            return reply(_waiting(pack, work), status=202)
    removed = removal.finish(name, **asked, accepts_breaking=query.accept_breaking)
    return reply(
        RemovedOut(
            pack=removed.pack,
            version=removed.version,
            is_removed=True,
            actions=list(removed.actions),
            disabled=list(removed.disabled),
            open=0,
            waits_for=[],
        )
    )


def _waiting(pack: Pack, work: removal.OpenWork) -> RemovedOut:
    return RemovedOut(
        pack=pack.name,
        version=pack.version,
        is_removed=False,
        actions=[],
        disabled=[],
        open=work.total,
        waits_for=list(work.listed),
    )


def _visible(request: AuthenticatedRequest, name: str, permission: str = "actions.read") -> Pack:
    pack = releases.find(name)
    if not authority.may(request.auth.principal, permission, Place(PACKS, pack.name)):
        raise _unknown(name)
    return pack


def _unknown(name: str) -> releases.UnknownPack:
    return releases.UnknownPack(f"No pack is called {name!r:.70}")


def _body(request: AuthenticatedRequest) -> bytes:
    content_type = request.META.get("CONTENT_TYPE", "").split(";", 1)[0].strip().lower()
    if content_type not in ARCHIVES:
        expected = ", ".join(ARCHIVES)
        raise problems.plain(415, f"Expected one of {expected}; found {content_type[:100]!r}")
    # not its `body`, which has the limit of all other requests
    body: bytes = request.read(archives.most_bytes() + 1)
    if len(body) > archives.most_bytes():
        raise problems.too_large(archives.most_bytes())
    if not body:
        raise problems.plain(400, "The body is empty: expected an archive of a pack's folder")
    return body


def _not_valid(messages: list[str]) -> Problem:
    return problems.invalid([FieldProblem(pointer="", message=each) for each in messages])
