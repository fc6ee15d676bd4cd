"""The content of releases that nothing needs any more."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction

from orchestrator.core import frame
from orchestrator.core.models import Execution, Release
from orchestrator.core.packs import store

log = structlog.get_logger(__name__)


def tidy(*, now: datetime) -> dict[str, int]:
    """Remove the content of releases that have not been installed for a day, by default, and that
    no open execution, task or the like has; returns how many. Their rows stay."""
    old = now - timedelta(hours=settings.MUSTER.keep_releases_hours)
    rows = Release.objects.filter(retired_at__lt=old, content_gone_at__isnull=True)
    candidates = set(rows.values_list("pk", flat=True))
    unneeded = sorted(candidates - needed()) if candidates else []
    gone = [pk for pk in unneeded if _drop(pk, old, now)]
    try:
        store.remove_files(now=now)
    except store.StorageFailed as error:  # they go the next time
        log.warning("files of releases not removed", error=str(error))
    return {"releases": len(gone)} if gone else {}


def needed() -> set[int]:
    """The releases that open rows have, or may still ask for."""
    opened = Execution.objects.open().filter(release__isnull=False)
    ids = set(opened.order_by().values_list("release", flat=True).distinct())
    for each in frame.collect(lambda app: app.pack_work):
        ids |= set(each.releases())
    return {pk for pk in ids if pk is not None}


@transaction.atomic
def _drop(pk: int, old: datetime, now: datetime) -> bool:
    """Remove the content unless the release was installed again meanwhile."""
    rows = Release.objects.select_for_update().filter(pk=pk, retired_at__lt=old)
    release = rows.filter(content_gone_at__isnull=True).first()
    if release is None:
        return False
    store.drop(release, now=now)
    return True
