"""Task messages through a gate: from the first one published to the last answer confirmed."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import rivals
from benchmarks.rounds import per_second
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts
from benchmarks.stage import Party, Stage

PREFORK, THREADS = "Muster's gate, prefork 2", "Muster's gate, threads 4"
LOOP, PIKA, BY_HAND = (
    rival.name for rival in (rivals.KOMBU_LOOP, rivals.PIKA_WORKER, rivals.GATE_BY_HAND)
)
OTHERS = (rivals.DRAMATIQ, rivals.RQ, rivals.TASKIQ, rivals.CELERY_RESULTS)


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.gate(pool="prefork", slots=2) as muster,
        stage.rival(rivals.KOMBU_LOOP) as loop,
        stage.rival(rivals.PIKA_WORKER) as pika,
        stage.rival(rivals.GATE_BY_HAND) as by_hand,
    ):
        parties: dict[str, Party] = {PREFORK: muster, LOOP: loop, PIKA: pika, BY_HAND: by_hand}
        yield from per_second(parties, plan.size, rounds=plan.rounds)
    with stage.gate(pool="threads", slots=4) as muster:
        yield from per_second({THREADS: muster}, plan.size, rounds=plan.rounds)


BENCHMARK = Benchmark(
    name="gates",
    title="Task messages through a gate, in bulk",
    measure=measure,
    notes=(
        "The same client publishes to all, with a wait for confirms every 500. The loop in kombu "
        "answers in batches; the worker in pika waits for each confirm; neither keeps track of "
        "anything, runs anything, or knows a duplicate. By hand: pika's worker, twice, with a row "
        "and its history committed when a message is taken in, begun, ended and told."
    ),
    goals=[
        Goal(what="gate, prefork 2", subject=PREFORK, unit="executions/s", at_least=900),
        Goal(what="gate, threads 4", subject=THREADS, unit="executions/s", at_least=1_200),
        Goal(what="gate over a bare loop", subject=PREFORK, over=LOOP, at_least=0.25),
        Goal(what="gate over pika", subject=PREFORK, over=PIKA, at_least=0.6),
    ],
)


def measure_others(stage: Stage, plan: Plan) -> Iterator[Sample]:
    size = parts(plan.size, one_of=2, at_least=500)
    with stage.gate(slots=2) as muster:
        for rival in OTHERS:
            with stage.rival(rival) as other:
                parties: dict[str, Party] = {_beside(rival): muster, rival.name: other}
                yield from per_second(parties, size, rounds=plan.rounds)


def _beside(rival: rivals.Rival) -> str:
    return f"Muster's gate beside {rival.name}"


def _goal(rival: rivals.Rival, at_least: float) -> Goal:
    return Goal(
        what=f"gate over {rival.name}", subject=_beside(rival), over=rival.name, at_least=at_least
    )


OTHERS_BENCHMARK = Benchmark(
    name="gates-others",
    title="Task messages through a gate, beside libraries with results",
    measure=measure_others,
    notes="Two processes, or slots, each; see bulk-others for what these keep.",
    goals=[
        _goal(rival, at_least) for rival, at_least in zip(OTHERS, (0.7, 2.0, 0.5, 1.3), strict=True)
    ],
)
