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
FASTAPI_CELERY = Rival(
    name="FastAPI", module="benchmarks.rivals.fastapi_celery", command=RAW_CELERY.command
)
FASTAPI_APP = "benchmarks.rivals.fastapi_celery:api"
BY_HAND = _celery("By hand", "benchmarks.rivals.by_hand")
BY_HAND_API = Rival(name="By hand", module="benchmarks.rivals.by_hand_api", command=BY_HAND.command)
BY_HAND_APP = "benchmarks.rivals.by_hand_api:api"
BY_HAND_TOKEN = "mst_by_hand"  # noqa: S105 - of a database that lives as long as the benchmark
CELERY_RESULTS = _celery("Celery with results", "benchmarks.rivals.celery_results")
PROCRASTINATE = Rival(
    name="Procrastinate",
    module="benchmarks.rivals.procrastinate_",
    command=("-m", "benchmarks.rivals.procrastinate_"),
)
DBOS = Rival(
    name="DBOS", module="benchmarks.rivals.dbos_", command=("-m", "benchmarks.rivals.dbos_")
)
DRAMATIQ = Rival(
    name="Dramatiq",
    module="benchmarks.rivals.dramatiq_",
    command=("-m", "dramatiq", "benchmarks.rivals.dramatiq_", "--processes", "2"),
)
RQ = Rival(name="RQ", module="benchmarks.rivals.rq_", command=("-m", "benchmarks.rivals.rq_"))
HUEY = Rival(
    name="Huey",
    module="benchmarks.rivals.huey_",
    command=(
        *("-m", "huey.bin.huey_consumer", "benchmarks.rivals.huey_.huey"),
        *("--workers", "2", "--worker-type", "process", "--no-periodic"),
    ),
)
TASKIQ = Rival(
    name="taskiq",
    module="benchmarks.rivals.taskiq_",
    command=(
        *("-m", "taskiq", "worker", "benchmarks.rivals.taskiq_:broker"),
        *("--workers", "2", "--log-level", "WARNING"),
    ),
)
KOMBU_LOOP = Rival(
    name="kombu loop",
    module="benchmarks.rivals.kombu_loop",
    command=("-m", "benchmarks.rivals.kombu_loop"),
)
GATE_BY_HAND = Rival(
    name="Gate by hand",
    module="benchmarks.rivals.gate_by_hand",
    command=("-m", "benchmarks.rivals.gate_by_hand"),
)
PIKA_WORKER = Rival(
    name="pika worker",
    module="benchmarks.rivals.pika_worker",
    command=("-m", "benchmarks.rivals.pika_worker"),
)
ARQ = Rival(
    name="arq",
    module="benchmarks.rivals.arq_",
    command=("-m", "arq", "benchmarks.rivals.arq_.WorkerSettings"),
)
