"""The lines that the promise rests on, and how each is broken."""

from __future__ import annotations

from dataclasses import dataclass

Stage = tuple[str, ...]

STATE_MACHINE: Stage = ("tests/orchestrator/test_state_machine.py",)
ATTEMPTS: Stage = ("tests/orchestrator/test_executions_attempts.py",)
REQUESTS: Stage = ("tests/orchestrator/test_executions_requests.py",)
SCHEDULING: Stage = ("tests/orchestrator/test_executions_scheduling.py",)
SWEEPING: Stage = ("tests/orchestrator/test_executions_sweeping.py",)
PLACEMENT: Stage = ("tests/orchestrator/test_fleet_placement.py",)
EVACUATION: Stage = ("tests/orchestrator/test_executions_evacuation.py",)
DEAD_LETTERS: Stage = ("tests/orchestrator/test_dead_letters.py",)
FLEET: Stage = ("tests/orchestrator/test_fleet.py",)
PUBLISHER: Stage = ("tests/orchestrator/test_publisher.py",)
TOPOLOGY: Stage = ("tests/orchestrator/test_topology.py",)
DESK: Stage = ("tests/workers/test_desk.py",)
CONSUMERS: Stage = ("tests/tasks",)
MAINTENANCE: Stage = ("tests/orchestrator/test_maintenance.py",)


def _scenario(*names: str) -> Stage:
    return tuple(f"tests/scenarios/test_{name}.py" for name in names)


@dataclass(frozen=True)
class Mutant:
    """One line (or two that belong together), broken, and the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    stages: tuple[Stage, ...]
    """Tests, the quickest first."""


SWAP = "orchestrator/models/compare_and_swap.py"
CLAIM = "orchestrator/models/claiming.py"
ROWS = "orchestrator/models/executions.py"
LIVES = "orchestrator/fleet/lives.py"
ATTEMPT = "orchestrator/executions/attempts.py"
LETTERS = "orchestrator/dead_letters.py"

MUTANTS = (
    # --- compare and swap ---
    Mutant(
        "attempt not compared, SQLite",
        SWAP,
        "          AND subject.{fence} = json_extract(batch.value, '$[2]')\n",
        "",
        (STATE_MACHINE,),
    ),
    Mutant(
        "status not compared, SQLite",
        SWAP,
        "          AND subject.{column} = json_extract(batch.value, '$[1]')\n",
        "",
        (STATE_MACHINE,),
    ),
    Mutant(
        "attempt not compared, PostgreSQL",
        SWAP,
        "AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}",
        "AND locked.{column} = locked.new_{column}",
        (STATE_MACHINE,),
    ),
    Mutant(
        "status not compared, PostgreSQL",
        SWAP,
        "AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}",
        "AND locked.{fence} = locked.new_{fence}",
        (STATE_MACHINE,),
    ),
    Mutant(
        "rows not locked in order",
        SWAP,
        "ORDER BY subject.id FOR NO KEY UPDATE OF subject",
        "ORDER BY random() FOR NO KEY UPDATE OF subject",
        (("tests/chaos/test_model.py::test_batches_of_the_same_rows_never_deadlock",),),
    ),
    Mutant(
        "no trigger keeps terminal statuses",
        "orchestrator/migrations/0002_terminal_is_final.py",
        "    for statement in statements:",
        "    for statement in ():",
        (STATE_MACHINE,),
    ),
    # --- claim ---
    Mutant(
        "claim after start_by, portable",
        CLAIM,
        "        start_by__gt=now,\n",
        "",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim after the deadline, portable",
        CLAIM,
        "        deadline_at__gt=now,\n",
        "",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by an earlier life of the worker, portable",
        CLAIM,
        "        worker__incarnation=incarnation,\n",
        "",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by a worker that was declared lost, portable",
        CLAIM,
        "        worker__gone_at__isnull=True,\n",
        "",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by another worker, portable",
        CLAIM,
        "        worker_id=worker_id,\n        start_by__gt=now,",
        "        start_by__gt=now,",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim of an attempt by the message of another, portable",
        CLAIM,
        " if attempts[execution.pk] == execution.attempt]",
        "]",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim after start_by, PostgreSQL",
        CLAIM,
        "locked.start_by > %s",
        "(locked.start_by > %s OR TRUE)",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim after the deadline, PostgreSQL",
        CLAIM,
        "locked.deadline_at > %s",
        "(locked.deadline_at > %s OR TRUE)",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by an earlier life of the worker, PostgreSQL",
        CLAIM,
        "incarnation = %s AND gone_at",
        "(incarnation = %s OR TRUE) AND gone_at",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by a worker that was declared lost, PostgreSQL",
        CLAIM,
        "gone_at IS NULL)",
        "TRUE)",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by another worker, PostgreSQL",
        CLAIM,
        "locked.worker_id = %s\n",
        "(locked.worker_id = %s OR TRUE)\n",
        (ATTEMPTS,),
    ),
    # --- the end of an attempt ---
    Mutant(
        "finish reloads the execution",
        ATTEMPT,
        "            [end.execution for end in group],",
        "            list(Execution.objects.filter(pk__in=results)),",
        (ATTEMPTS,),
    ),
    Mutant(
        "retry without asking the policy",
        ATTEMPT,
        """        and policy.allows(
            reason, retry_count=execution.retry_count, idempotent=execution.action.idempotent
        )
""",
        "",
        (ATTEMPTS,),
    ),
    Mutant(
        "retry past the deadline",
        ATTEMPT,
        "        and execution.deadline_at > now\n",
        "",
        (ATTEMPTS, SWEEPING),
    ),
    Mutant(
        "unknown outcome repeated though not idempotent",
        "orchestrator/retry_policy.py",
        "if reason.known is Known.OUTCOME_UNKNOWN and not idempotent:",
        "if False:",
        (("tests/orchestrator/test_retry_policy.py",), ATTEMPTS),
    ),
    Mutant(
        "worker gives back what is another's",
        ATTEMPT,
        "dispatched.filter(worker_id=worker_id) if worker_id is not None else ()",
        "dispatched if worker_id is not None else ()",
        (ATTEMPTS,),
    ),
    Mutant(
        "end of an attempt told before the commit",
        ATTEMPT,
        """    transaction.on_commit(
        lambda: publisher.send_soon(
            [*publisher.completed(list(moved - retried)), *publisher.requested(due)]
        )
    )
""",
        """    publisher.send_soon(
        [*publisher.completed(list(moved - retried)), *publisher.requested(due)]
    )
""",
        (ATTEMPTS, DEAD_LETTERS),
    ),
    Mutant(
        "cancel ignores the status",
        "orchestrator/executions/cancellation.py",
        "    if execution.status != ExecutionStatus.RUNNING:",
        "    if True:",
        (ATTEMPTS,),
    ),
    # --- requests and scheduling ---
    Mutant(
        "request told before the commit",
        "orchestrator/executions/requests.py",
        "transaction.on_commit(partial(publisher.send_soon, publisher.requested(fresh)))",
        "publisher.send_soon(publisher.requested(fresh))",
        (REQUESTS,),
    ),
    Mutant(
        "dispatch before the commit",
        "orchestrator/executions/scheduling.py",
        "transaction.on_commit(partial(_dispatch, dispatched, now=now, actor=actor))",
        "_dispatch(dispatched, now=now, actor=actor)",
        (SCHEDULING,),
    ),
    Mutant(
        "redelivered request not dispatched again",
        "orchestrator/executions/scheduling.py",
        "    if redelivered:",
        "    if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "unroutable dispatch not noticed",
        "orchestrator/executions/scheduling.py",
        "    if unroutable:",
        "    if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "executor acknowledges before it has scheduled",
        "tasks/consumers.py",
        "        last = None\n        for message in batch:",
        "        last = None\n        batch[-1].ack(multiple=True)\n        for message in batch:",
        (CONSUMERS, _scenario("server_faults")),
    ),
    # --- sweep ---
    Mutant(
        "sweep without run_deadline_at",
        ROWS,
        "Q(run_deadline_at__lte=now) | Q(deadline_at__lte=out_of_grace), status__in",
        "Q(deadline_at__lte=out_of_grace), status__in",
        (SWEEPING,),
    ),
    Mutant(
        "sweep without start_by",
        ROWS,
        "self.open().filter(status=ExecutionStatus.SCHEDULED, start_by__lte=now)",
        "self.none()",
        (SWEEPING,),
    ),
    Mutant(
        "sweep without the deadline",
        ROWS,
        "self.open().filter(deadline_at__lte=now).exclude(status__in=STARTED)",
        "self.none()",
        (SWEEPING,),
    ),
    Mutant(
        "pinned work is taken from its worker",
        "orchestrator/executions/evacuation.py",
        "    return dispatched.filter(pinned_worker__isnull=True)",
        "    return dispatched",
        (EVACUATION,),
    ),
    Mutant(
        "unclaimed work is given back though nobody else could take it",
        "orchestrator/executions/evacuation.py",
        "        if any(_could_go_to(_need(execution), *offer) for offer in offers)",
        "        if offers",
        (EVACUATION,),
    ),
    Mutant(
        "work dispatched to the new life is taken from it",
        "orchestrator/executions/evacuation.py",
        'worker_id=worker_id, scheduled_at__lt=F("worker__registered_at")',
        "worker_id=worker_id",
        (EVACUATION,),
    ),
    Mutant(
        "what a worker without a free slot holds is dispatched again",
        "orchestrator/executions/scheduling.py",
        "if running.get(pk, 0) < capacity]",
        "]",
        (SCHEDULING,),
    ),
    Mutant(
        "cordoned worker is chosen",
        "orchestrator/fleet/placement.py",
        "not seat.is_cordoned\n                and ",
        "",
        (PLACEMENT,),
    ),
    Mutant(
        "check that passes undoes a drain",
        LIVES,
        "    if worker.status == Status.DRAINING:\n        change(",
        "    if False:\n        change(",
        (FLEET,),
    ),
    Mutant(
        "earlier life of a worker is not settled",
        "orchestrator/executions/evacuation.py",
        ' | ~Q(worker_incarnation=F("worker__incarnation"))',
        "",
        (EVACUATION,),
    ),
    Mutant(
        "watchdog off",
        "tasks/watchdog.py",
        "        while not self.stopping.wait(pause_seconds):",
        "        while False:",
        (CONSUMERS, _scenario("beat")),
    ),
    Mutant(
        "tick runs whoever else has run it",
        "orchestrator/maintenance.py",
        "    if not Tick.objects.claim(",
        "    if None is Tick.objects.claim(",
        (MAINTENANCE,),
    ),
    # --- workers ---
    Mutant(
        "heartbeat of an earlier life counts",
        LIVES,
        "filter(pk=worker_id, incarnation=incarnation, gone_at__isnull=True)",
        "filter(pk=worker_id, gone_at__isnull=True)",
        (FLEET,),
    ),
    Mutant(
        "heartbeat of a lost worker counts",
        LIVES,
        "filter(pk=worker_id, incarnation=incarnation, gone_at__isnull=True)",
        "filter(pk=worker_id, incarnation=incarnation)",
        (FLEET,),
    ),
    Mutant(
        "worker lost although it has beaten meanwhile",
        LIVES,
        """                Worker.objects.stale(now)
                .filter(pk=worker.pk, incarnation=worker.incarnation)""",
        """                Worker.objects
                .filter(pk=worker.pk, incarnation=worker.incarnation)""",
        (FLEET,),
    ),
    Mutant(
        "worker whose heartbeat is refused goes on",
        "workers/heartbeat.py",
        'self.agent.die("it was declared lost or replaced")',
        "pass",
        (_scenario("zombies"),),
    ),
    Mutant(
        "acknowledged before the claim",
        "workers/attempts.py",
        "        attempt.desk = self\n",
        "        attempt.desk = self\n        attempt.acknowledge()\n",
        (DESK, _scenario("killed", "queue_ttl", "server_faults")),
    ),
    Mutant(
        "started without its claim",
        "workers/attempts.py",
        "            execution = granted.pop(attempt.execution_id, None)",
        "            execution = granted.get(attempt.execution_id)",
        (DESK, _scenario("duplicates")),
    ),
    Mutant(
        "prefetch unlimited",
        "workers/agent.py",
        "            self.consumer.qos.value = step",
        "            self.consumer.qos.value = 0",
        (DESK, _scenario("queue_ttl")),
    ),
    # --- messages ---
    Mutant(
        "not mandatory",
        "orchestrator/publisher.py",
        "            mandatory=True,",
        "            mandatory=False,",
        (PUBLISHER,),
    ),
    Mutant(
        "confirms not awaited",
        "orchestrator/publisher.py",
        "        while self.unconfirmed:",
        "        while False:",
        (PUBLISHER,),
    ),
    Mutant(
        "refusal (nack) of the broker ignored",
        "orchestrator/publisher.py",
        "        if self.refused:",
        "        if False:",
        (PUBLISHER,),
    ),
    Mutant(
        "worker queue without TTL",
        "orchestrator/topology.py",
        'arguments={"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms} | _dead_lettering(),',
        "arguments=_dead_lettering(),",
        (TOPOLOGY,),
    ),
    Mutant(
        "worker queue without dead letter exchange",
        "orchestrator/topology.py",
        'arguments={"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms} | _dead_lettering(),',
        'arguments={"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms},',
        (TOPOLOGY,),
    ),
    # --- dead letters ---
    Mutant(
        "drain acknowledges before the commit",
        LETTERS,
        """            total += settle([read(message) for message in batch], now=now)
            batch[-1].ack(multiple=True)
""",
        """            batch[-1].ack(multiple=True)
            total += settle([read(message) for message in batch], now=now)
""",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "drain ignores the attempt",
        LETTERS,
        "waiting.pop((letter.execution_id, letter.attempt), None)",
        "next((e for key, e in waiting.items() if key[0] == letter.execution_id), None)",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "drain ignores the status",
        LETTERS,
        "            status=ExecutionStatus.SCHEDULED,\n",
        "",
        (DEAD_LETTERS,),
    ),
)
