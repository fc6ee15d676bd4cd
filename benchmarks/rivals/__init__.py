"""Others that do a part of Muster's work: how each is started. Their modules are imported by
processes of their own only, so that one that is not installed stops nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rival:
    """One other system, configured for throughput as its documentation says; see its module."""

    name: str
    module: str
    command: tuple[str, ...]
    """Of its worker, after the interpreter's name. It says `ready.` once it works."""


def _celery(name: str, module: str) -> Rival:
    # without gossip and mingle, as Muster's workers: a single worker has nobody to talk to;
    # and without a log line for each task, which would be most of its work
    options = ("--pool", "prefork", "--without-gossip", "--without-mingle", "--loglevel", "WARNING")
    return Rival(
        name=name, module=module, command=("-m", "celery", "-A", module, "worker", *options)
    )


RAW_CELERY = _celery("Celery", "benchmarks.rivals.raw_celery")
CELERY_RESULTS = _celery("Celery with results", "benchmarks.rivals.celery_results")
PROCRASTINATE = Rival(
    name="Procrastinate",
    module="benchmarks.rivals.procrastinate_",
    command=("-m", "benchmarks.rivals.procrastinate_"),
)
DBOS = Rival(
    name="DBOS", module="benchmarks.rivals.dbos_", command=("-m", "benchmarks.rivals.dbos_")
)
