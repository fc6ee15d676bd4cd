"""Steps a second through a whole installation: wide tasks, and linear ones beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.samples import Benchmark, Plan, Sample
from benchmarks.stage import Stage

LINEAR, WIDE = 10, 100


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    shapes = {
        f"wide, {WIDE} at once": (f"wide-{WIDE}", WIDE + 1),
        f"linear, {LINEAR} in a row": (f"linear-{LINEAR}", LINEAR),
    }
    with stage.muster(slots=2) as muster:
        muster.remote.call("install_templates", sizes=[LINEAR, WIDE])
        muster.warm_up()
        for number in range(1, plan.rounds + 1):
            for subject, (template, steps) in shapes.items():
                count = max(1, plan.size // steps // 2)
                seconds = muster.remote.call("run_tasks", template=template, count=count)
                yield Sample(subject, number, count * steps / seconds, "steps/s")


BENCHMARK = Benchmark(
    name="steps",
    title="Steps of tasks a second",
    measure=measure,
    notes="PostgreSQL and RabbitMQ, 2 slots, actions that do nothing; all tasks requested one "
    "by one, from the first request to the end of the last task.",
)
