"""A second installation on the same virtual host: another namespace, another database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from tests.scenarios.installation import QUICK, TERMINAL, ClientError, Installation, Service

EXECUTIONS = 20
READY_SECONDS, WITHIN_SECONDS = 60.0, 180.0
"""It shares all servers, and what happens to them."""
DEADLINE_SECONDS = 6 * 3_600.0
"""Its database's clock is set, too: not so far that this would be over."""
SETTINGS: dict[str, Any] = {
    "namespace": "neighbour",
    # unlike ours: a queue that both think is theirs cannot be declared twice
    "worker_queue_ttl_ms": QUICK["worker_queue_ttl_ms"] + 1_000,
}


def visit(host: Installation, *, pack: str) -> dict[str, str]:
    """Let a second installation do some work beside ours, and go; how each execution ended.

    What its actions write down is no evidence of ours.
    """
    guest = Installation(host.backend, beside=host, **SETTINGS)
    try:
        # until it can: the database may go away meanwhile
        guest.wait_for(partial(_prepare, guest, pack), "no database", within_seconds=READY_SECONDS)
        services = _Services(guest)
        guest.wait_for(services.are_up, "services are not ready", within_seconds=READY_SECONDS)
        parameters = {"trace": str(guest.directory / "trace"), "seconds": 0.05}
        asked = {"parameters": parameters, "deadline_seconds": DEADLINE_SECONDS}
        submit = partial(guest.submit_many, [asked] * EXECUTIONS, "chaos.again")
        ids = guest.wait_for(submit, "nothing accepted", within_seconds=READY_SECONDS)
        return _ends(guest, services, ids)
    # its services do not come up, or its client: a database that is away is another matter
    except (AssertionError, OSError) as error:
        return {"its services": str(error)[:300]}
    finally:
        guest.close()


def _prepare(guest: Installation, pack: str) -> bool:
    guest.client.call("prepare", pack_paths=[pack])
    return True


class _Services:
    """Its executor and its worker, each of which is started again when it has ended."""

    def __init__(self, guest: Installation) -> None:
        self.starts: tuple[Callable[[], Service], ...] = (
            guest.start_executor,
            partial(guest.start_worker, "w1"),
        )
        self.running = [start() for start in self.starts]

    def are_up(self) -> bool:
        for number, (service, start) in enumerate(zip(self.running, self.starts, strict=True)):
            if service.process.poll() is not None:
                self.running[number] = start()
        return all(service.is_up() for service in self.running)


def _ends(guest: Installation, services: _Services, ids: list[UUID]) -> dict[str, str]:
    def are_over() -> bool:
        services.are_up()
        rows = guest.executions()
        return all(rows[id].status in TERMINAL for id in ids)

    with contextlib.suppress(AssertionError, ClientError):  # told by what is still open
        guest.wait_for(are_over, "not over", within_seconds=WITHIN_SECONDS)
    rows = guest.executions()
    return {str(id): _end(rows[id]) for id in ids}


def _end(row: Any) -> str:
    return "completed" if row.status == "completed" else f"{row.status}, {row.reason}"
