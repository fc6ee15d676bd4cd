"""The lines that the promise rests on, and how each is broken."""

from __future__ import annotations

from dataclasses import dataclass

Stage = tuple[str, ...]

STATE_MACHINE: Stage = ("tests/core/test_state_machine.py",)
ATTEMPTS: Stage = ("tests/core/executions/test_attempts.py",)
REQUESTS: Stage = ("tests/core/executions/test_requests.py",)
PLACING: Stage = ("tests/core/executions/test_placing.py",)
PLACING_FILE = "orchestrator/core/executions/placing.py"
SCHEDULING_FILE = "orchestrator/core/executions/scheduling.py"
SCHEDULING: Stage = ("tests/core/executions/test_scheduling.py",)
SWEEPING: Stage = ("tests/core/executions/test_sweeping.py",)
PLACEMENT: Stage = ("tests/core/fleet/test_placement.py",)
EVACUATION: Stage = ("tests/core/executions/test_lost_workers.py",)
UNCLAIMED: Stage = ("tests/core/executions/test_unclaimed.py",)
DEAD_LETTERS: Stage = ("tests/core/test_dead_letters.py",)
GATE_LETTERS: Stage = ("tests/queues/gates/test_letters.py",)
GATE_JUDGING: Stage = ("tests/queues/gates/test_judging.py",)
GATE_INTAKE: Stage = ("tests/queues/gates/test_intake.py",)
GATE_LINKS: Stage = ("tests/tasks/test_gate_links.py",)
KEEPER: Stage = ("tests/tasks/test_gates.py",)
UNDECODABLE: Stage = ("tests/core/test_undecodable.py",)
FLEET: Stage = ("tests/core/fleet/test_lives.py",)
PUBLISHER: Stage = ("tests/core/test_publisher.py",)
RELAY: Stage = ("tests/core/test_relay.py",)
PRESENCE: Stage = ("tests/core/test_presence.py",)
PING: Stage = ("tests/core/management/test_ping.py",)
SCHEDULER: Stage = ("tests/tasks/test_batch_scheduler.py",)
TOPOLOGY: Stage = ("tests/core/test_topology.py",)
BROKERS: Stage = ("tests/core/test_brokers.py",)
DESK: Stage = ("tests/workers/test_desk.py",)
SLOTS: Stage = ("tests/workers/test_slots.py",)
AUDIT: Stage = ("tests/workers/test_audit.py",)
STRATEGIES: Stage = ("tests/workers/test_strategies.py",)
STOPPING: Stage = ("tests/workers/test_stopping.py",)
CLERKS: Stage = ("tests/workers/test_database_threads.py",)
OPENING: Stage = ("tests/workers/test_opening.py",)
MASKING: Stage = ("tests/core/test_masking.py",)
CONSUMERS: Stage = ("tests/tasks",)
MISSING_CODE: Stage = ("tests/core/test_missing_code.py",)
CODE_WATCH: Stage = ("tests/workers/test_missing_code.py",)
MAINTENANCE: Stage = ("tests/core/test_maintenance.py",)
HELD_ROWS: Stage = ("tests/core/test_held_rows.py",)
TICKS: Stage = ("tests/tasks/test_maintenance.py",)
CLOCK: Stage = ("tests/core/test_clock.py",)
TRIES: Stage = ("tests/workflows/test_tries.py",)
READ_ONLY: Stage = ("tests/core/test_read_only.py",)
DEFERRING: Stage = ("tests/core/executions/test_deferring.py",)
PAUSES: Stage = ("tests/core/fleet/test_pauses.py",)
OF_WORKER: Stage = ("tests/workers/test_pauses.py",)
QUEUED: Stage = ("tests/queues/test_scheduling.py",)
STATEMENTS: Stage = ("tests/core/test_statements.py",)
STATEMENTS_FILE = "orchestrator/core/statements.py"


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


ON_SQLITE = "orchestrator/core/state_machine/sqlite.py"
ON_POSTGRESQL = "orchestrator/core/state_machine/postgresql.py"
CLAIM = "orchestrator/core/models/claiming.py"
ROWS = "orchestrator/core/models/execution_sets.py"
LIVES = "orchestrator/core/fleet/lives.py"
ATTEMPT = "orchestrator/core/executions/attempts.py"
LETTERS = "orchestrator/core/dead_letters.py"
DEFERRALS = "orchestrator/core/executions/deferring.py"
QUEUED_FILE = "orchestrator/core/executions/queued.py"
BACKLOG_FILE = "orchestrator/core/models/backlog.py"
BACKLOG = ("tests/core/test_backlog.py",)

MUTANTS = (
    # --- what is seen of a service that lives ---
    Mutant(
        "failing scheduler keeps it to itself",
        "tasks/batch_scheduler.py",
        '                self.note_failure(error)\n                log.exception("scheduling',
        '                log.exception("scheduling',
        (SCHEDULER,),
    ),
    Mutant(
        "trouble is never said",
        "orchestrator/core/presence.py",
        "trouble=trouble):",
        'trouble=""):',
        (PRESENCE,),
    ),
    Mutant(
        "service in trouble is well",
        "orchestrator/core/management/ping.py",
        "    if alive and life.trouble:",
        "    if False and life.trouble:",
        (PING,),
    ),
    Mutant(
        "message of a quorum queue comes again 20 times at most",
        "orchestrator/core/topology.py",
        '{"x-delivery-limit": 1_000_000_000}',
        "{}",
        (TOPOLOGY,),
    ),
    # --- compare and swap ---
    Mutant(
        "attempt not compared, SQLite",
        ON_SQLITE,
        "          AND subject.{fence} = json_extract(batch.value, '$[2]')\n",
        "",
        (STATE_MACHINE,),
    ),
    Mutant(
        "status not compared, SQLite",
        ON_SQLITE,
        "          AND subject.{column} = json_extract(batch.value, '$[1]')\n",
        "",
        (STATE_MACHINE,),
    ),
    Mutant(
        "attempt not compared, PostgreSQL",
        ON_POSTGRESQL,
        "AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}",
        "AND locked.{column} = locked.new_{column}",
        (STATE_MACHINE,),
    ),
    Mutant(
        "status not compared, PostgreSQL",
        ON_POSTGRESQL,
        "AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}",
        "AND locked.{fence} = locked.new_{fence}",
        (STATE_MACHINE,),
    ),
    Mutant(
        "rows not locked in order",
        ON_POSTGRESQL,
        "ORDER BY subject.id\n",
        "ORDER BY random()\n",
        (("tests/chaos/test_model.py::test_batches_of_the_same_rows_never_deadlock",),),
    ),
    Mutant(
        "no trigger keeps terminal statuses",
        "orchestrator/core/finality.py",
        "        for statement in on_postgresql if is_postgresql else on_sqlite:",
        "        for statement in ():",
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
        " if execution.key in wanted]",
        "]",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim after start_by, PostgreSQL",
        CLAIM,
        "locked.start_by > %(now)s",
        "(locked.start_by > %(now)s OR TRUE)",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim after the deadline, PostgreSQL",
        CLAIM,
        "locked.deadline_at > %(now)s",
        "(locked.deadline_at > %(now)s OR TRUE)",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim by an earlier life of the worker, PostgreSQL",
        CLAIM,
        "incarnation = %(incarnation)s AND gone_at",
        "(incarnation = %(incarnation)s OR TRUE) AND gone_at",
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
        "locked.worker_id = %(worker_id)s\n",
        "(locked.worker_id = %(worker_id)s OR TRUE)\n",
        (ATTEMPTS,),
    ),
    # --- the end of an attempt ---
    Mutant(
        "finish reloads the execution",
        ATTEMPT,
        "                [end.execution for end in group],",
        "                list(Execution.objects.filter(pk__in=results)),",
        (ATTEMPTS,),
    ),
    Mutant(
        "retry without asking the policy",
        ATTEMPT,
        """    return is_dispatched and policy.allows(
        reason, retry_count=execution.retry_count, idempotent=execution.action.idempotent
    )
""",
        "    return is_dispatched\n",
        (ATTEMPTS,),
    ),
    Mutant(
        "retry past the deadline",
        ATTEMPT,
        "        if due_at < execution.deadline_at:",
        "        if True:",
        (ATTEMPTS, SWEEPING),
    ),
    Mutant(
        "retry waits idle for the deadline",
        ATTEMPT,
        "        if due_at < execution.deadline_at:",
        "        if now < execution.deadline_at:",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim on SQLite lets others write between its statements",
        CLAIM,
        "        with transaction.atomic(using=self.db):",
        "        if True:",
        (ATTEMPTS,),
    ),
    Mutant(
        "unknown outcome repeated though not idempotent",
        "orchestrator/core/retry_policy.py",
        "if reason.known is Known.OUTCOME_UNKNOWN and not idempotent:",
        "if False:",
        (("tests/core/test_retry_policy.py",), ATTEMPTS),
    ),
    Mutant(
        "worker gives back what is another's",
        ATTEMPT,
        "dispatched.filter(worker_id=worker_id).without_contents() if worker_id",
        "dispatched.without_contents() if worker_id",
        (ATTEMPTS,),
    ),
    Mutant(
        "end of an attempt told before the commit",
        ATTEMPT,
        """    transaction.on_commit(
        lambda: relay.send_soon(
            [*messages.completed(list(moved - repeated)), *messages.requested(due)]
        )
    )
""",
        """    relay.send_soon(
        [*messages.completed(list(moved - repeated)), *messages.requested(due)]
    )
""",
        (ATTEMPTS, DEAD_LETTERS),
    ),
    Mutant(
        "cancel ignores the status",
        "orchestrator/core/executions/cancellation.py",
        "    if execution.status != ExecutionStatus.RUNNING:",
        "    if True:",
        (ATTEMPTS,),
    ),
    Mutant(
        "claim without an answer takes back what runs here",
        "workers/database_threads.py",
        "self.agent.desk.in_hand.only_in([each.key for each in batch])",
        "{each.key for each in batch}",
        (("tests/workers/test_database_threads.py",),),
    ),
    Mutant(
        "claim without an answer waits for the audit",
        "workers/database_threads.py",
        "        self._disown_unbegun(life, now)\n",
        "",
        (("tests/workers/test_database_threads.py",),),
    ),
    # --- requests and scheduling ---
    Mutant(
        "request told before the commit",
        "orchestrator/core/executions/requests.py",
        "transaction.on_commit(partial(relay.send_soon, _messages(fresh)))",
        "relay.send_soon(_messages(fresh))",
        (REQUESTS,),
    ),
    Mutant(
        "acceptance places what is pinned elsewhere",
        PLACING_FILE,
        '"may_be_placed": row.pinned_worker_id is None and _is_open(row, queues),',
        '"may_be_placed": _is_open(row, queues),',
        (PLACING,),
    ),
    Mutant(
        "acceptance overtakes what is due",
        PLACING_FILE,
        "AND (next_retry_at IS NULL OR next_retry_at <= %(now)s",
        "AND (next_retry_at IS NULL",
        (PLACING,),
    ),
    Mutant(
        "acceptance overtakes what waits for room",
        PLACING_FILE,
        "OR wait_reason = %(full)s)",
        ")",
        (PLACING,),
    ),
    Mutant(
        "acceptance places beside a suspect",
        PLACING_FILE,
        "WHERE lost_workers >= {SUSPECT_FROM}",
        "WHERE FALSE",
        (PLACING,),
    ),
    Mutant(
        "acceptance fills more than the slots",
        PLACING_FILE,
        "AND coalesce(load.held, 0) < worker.capacity",
        "AND coalesce(load.held, 0) < 2 * worker.capacity",
        (PLACING,),
    ),
    Mutant(
        "acceptance trusts a silent worker",
        PLACING_FILE,
        "AND worker.heartbeat_at BETWEEN %(oldest)s AND %(newest)s",
        "",
        (PLACING,),
    ),
    Mutant(
        "acceptance places where the code is missing",
        PLACING_FILE,
        "AND NOT worker.missing_code ?| %(code)s::text[]",
        "",
        (PLACING,),
    ),
    Mutant(
        "placed without history",
        PLACING_FILE,
        "FROM accepted WHERE worker_id IS NOT NULL",
        "FROM accepted WHERE FALSE",
        (PLACING,),
    ),
    Mutant(
        "process that cannot send places",
        PLACING_FILE,
        "and relay.is_sending()",
        "",
        (PLACING,),
    ),
    Mutant(
        "placed and never sent waits as long as any other",
        "orchestrator/core/executions/dispatching.py",
        "UNSENT_SECONDS = 2.0",
        "UNSENT_SECONDS = 10.0",
        (PLACING,),
    ),
    Mutant(
        "dispatch before the commit",
        "orchestrator/core/executions/assigning.py",
        "transaction.on_commit(partial(dispatching.dispatch, dispatches, now=now, actor=actor))",
        "dispatching.dispatch(dispatches, now=now, actor=actor)",
        (SCHEDULING,),
    ),
    Mutant(
        "redelivered request not dispatched again",
        "orchestrator/core/executions/scheduling.py",
        "    if redelivered:",
        "    if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "unroutable dispatch not noticed",
        "orchestrator/core/executions/dispatching.py",
        "    if without_queue:",
        "    if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "of what a message without a queue lists, one goes back",
        "orchestrator/core/executions/dispatching.py",
        "for each in sent[message.id][1]]",
        "for each in sent[message.id][1][:1]]",
        (SCHEDULING,),
    ),
    Mutant(
        "a TTL of its own is lost in a list",
        "orchestrator/core/executions/dispatching.py",
        "        if ttl_ms < settings.MUSTER.worker_queue_ttl_ms:",
        "        if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "executor acknowledges before it has scheduled",
        "tasks/batch_scheduler.py",
        "        last = None\n        for message in batch:",
        "        last = None\n        batch[-1].ack(multiple=True)\n        for message in batch:",
        (CONSUMERS, _scenario("server_faults")),
    ),
    # --- rows that somebody holds ---
    Mutant(
        "batch waits for a row that somebody holds",
        ON_POSTGRESQL,
        '{"" if wait_for_locks else "SKIP LOCKED"}',
        "",
        (HELD_ROWS,),
    ),
    Mutant(
        "tasks and steps are passed over when somebody holds them",
        ON_POSTGRESQL,
        '{"" if wait_for_locks else "SKIP LOCKED"}',
        "SKIP LOCKED",
        (HELD_ROWS,),
    ),
    Mutant(
        "rows that somebody holds fill every batch of a sweep",
        ATTEMPT,
        "rows.locked_for_batch(size).with_actions()",
        "rows[:size].with_actions()",
        (HELD_ROWS,),
    ),
    Mutant(
        "kind that cannot be ended keeps the others from it",
        "orchestrator/core/database.py",
        "            errors.append(error)\n",
        "            raise\n",
        (SWEEPING,),
    ),
    # --- a clock that is set ---
    Mutant(
        "tick of the future is not due",
        "orchestrator/core/models/maintenance.py",
        "ran_long_ago | runs_in_the_future",
        "ran_long_ago",
        (MAINTENANCE,),
    ),
    Mutant(
        "workers are lost by a clock that was set",
        LIVES,
        "    if not clock_is_trusted(now):",
        "    if False:",
        (CLOCK,),
    ),
    Mutant(
        "clock that nobody could read is trusted at once",
        "orchestrator/core/clock.py",
        "if reading.earliest - last.latest > _unwatched_seconds():",
        "if False:",
        (CLOCK,),
    ),
    Mutant(
        "retry waits for a time of a clock that was set back",
        "orchestrator/core/maintenance.py",
        "if not is_back or moment.was_set():",
        "if True:",
        (CLOCK,),
    ),
    Mutant(
        "deadline grows by as much as the clock was set back",
        "orchestrator/core/executions/sweeping.py",
        'deadline_at=now + (F("deadline_at") - F("created_at"))',
        'deadline_at=F("deadline_at")',
        (CLOCK,),
    ),
    Mutant(
        "deadline grows or shrinks whenever somebody sees that the clock was set back",
        "orchestrator/core/executions/sweeping.py",
        "update_unheld(created_at=now, deadline_at",
        "update_unheld(deadline_at",
        (CLOCK,),
    ),
    Mutant(
        "row that is held while the clock is set back keeps the deadline of the clock before",
        "orchestrator/core/executions/sweeping.py",
        "    if accepted.exists() or paused.exists():\n",
        "    if False:\n",
        (("tests/core/test_held_rows.py",),),
    ),
    Mutant(
        "slow answer is taken for a step",
        "orchestrator/core/clock.py",
        "after.earliest - before.latest, after.latest - before.earliest",
        "after.latest - before.latest, after.latest - before.latest",
        (CLOCK,),
    ),
    Mutant(
        "worker whose heartbeat is of the future is fresh",
        "orchestrator/core/models/fleet.py",
        "now + HEARTBEATS_AHEAD_BY + ahead",
        "now + timedelta(days=1)",
        (CLOCK,),
    ),
    Mutant(
        "work is ended by a clock that was set",
        "orchestrator/core/executions/sweeping.py",
        "    if fleet.clock_is_trusted(now):",
        "    if True:",
        (CLOCK,),
    ),
    Mutant(
        "dispatch is ended by a clock that was set",
        "orchestrator/core/executions/sweeping.py",
        "if fleet.clock_is_trusted(now) else executions.none()",
        "if True else executions.none()",
        (CLOCK,),
    ),
    Mutant(
        "sweep goes on with the time of a clock that was set meanwhile",
        ATTEMPT,
        "if batch and moment.was_set():",
        "if False:",
        (CLOCK,),
    ),
    Mutant(
        "worker lost by a time of before the clock was set",
        LIVES,
        "            if moment.was_set():",
        "            if False:",
        (CLOCK,),
    ),
    Mutant(
        "worker lost by a time of before a pause",
        LIVES,
        "            at = moment()",
        "            at = now",
        (CLOCK,),
    ),
    Mutant(
        "what others note during a pause is taken for a clock that was set back",
        "orchestrator/core/models/maintenance.py",
        "        now = moment()\n        if clock.ran_at",
        "        now = moment.at\n        if clock.ran_at",
        (CLOCK,),
    ),
    Mutant(
        "function is given a time of before it waited",
        "orchestrator/core/maintenance.py",
        ".function(now=moment())",
        ".function(now=now)",
        (CLOCK,),
    ),
    Mutant(
        "function is given the time of a clock that was set while it waited",
        "orchestrator/core/maintenance.py",
        "    if moment.was_set():\n        return None",
        "    if False:\n        return None",
        (CLOCK,),
    ),
    Mutant(
        "what is pinned to a worker that is gone waits for another one",
        "orchestrator/core/executions/unclaimed.py",
        "(execution.pinned_worker_id is None and _first_that_could_take(execution, present))",
        "_first_that_could_take(execution, present)",
        (UNCLAIMED,),
    ),
    Mutant(
        "history goes back",
        "orchestrator/core/executions/unclaimed.py",
        "reason=reason, now=moment(), actor=CHECK",
        "reason=reason, now=moment.at, actor=CHECK",
        (CLOCK,),
    ),
    Mutant(
        "who vanished holds executions for as long as other rows",
        "orchestrator/core/database.py",
        "idle_in_transaction_session_timeout = {BRIEF_MS}",
        "idle_in_transaction_session_timeout = 10000",
        (HELD_ROWS,),
    ),
    Mutant(
        "session that broke is kept by the tasks of beat",
        "tasks/maintenance.py",
        "        close_old_connections()\n",
        "",
        (TICKS,),
    ),
    Mutant(
        "sweep that vanished holds its rows for as long as others do",
        ATTEMPT,
        "            database.hold_briefly()\n",
        "",
        (HELD_ROWS,),
    ),
    Mutant(
        "what runs has longer than the promise leaves it",
        ROWS,
        "DEADLINE_GRACE = timedelta(seconds=5)",
        "DEADLINE_GRACE = timedelta(seconds=10)",
        (SWEEPING,),
    ),
    Mutant(
        "something slow between two sweeps",
        "orchestrator/workflows/apps.py",
        'has come.",\n            is_slow=True,',
        'has come.",',
        (MAINTENANCE,),
    ),
    Mutant(
        "read-only session is kept for ever",
        "orchestrator/core/database.py",
        "            connection.close_at = 0.0",
        "            pass",
        (READ_ONLY,),
    ),
    # --- sweep ---
    Mutant(
        "sweep without run_deadline_at",
        ROWS,
        "Q(run_deadline_at__lte=now) | out_of_grace, status__in",
        "out_of_grace, status__in",
        (SWEEPING,),
    ),
    Mutant(
        "sweep without start_by",
        ROWS,
        "self.dispatched().filter(start_by__lte=now, deadline_at__gt=now)",
        "self.none()",
        (SWEEPING,),
    ),
    Mutant(
        "sweep that ends by start_by after the deadline",
        ROWS,
        "self.dispatched().filter(start_by__lte=now, deadline_at__gt=now)",
        "self.dispatched().filter(start_by__lte=now)",
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
        "orchestrator/core/executions/unclaimed.py",
        "Execution.objects.dispatched().filter(pinned_worker__isnull=True)",
        "Execution.objects.dispatched()",
        (UNCLAIMED,),
    ),
    Mutant(
        "unclaimed work is given back though nobody else could take it",
        "orchestrator/core/executions/unclaimed.py",
        "        if _first_that_could_take(execution, eligible)\n    ]",
        "    ]",
        (UNCLAIMED,),
    ),
    Mutant(
        "a busy worker's work fails when its wait has run out",
        "orchestrator/core/executions/unclaimed.py",
        "        or execution.worker_id in beating\n",
        "",
        (UNCLAIMED,),
    ),
    Mutant(
        "queued work fails when no worker of its queue is there",
        "orchestrator/core/executions/unclaimed.py",
        "        if execution.queue is not None\n        or",
        "        if",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "a limit that was asked for does not count",
        "orchestrator/core/executions/unclaimed.py",
        "execution.queue_ttl_ms is not None or ",
        "",
        (UNCLAIMED,),
    ),
    Mutant(
        "what waits behind a full worker goes to one that is full too",
        "orchestrator/core/executions/unclaimed.py",
        "            free[worker] -= 1\n",
        "",
        (UNCLAIMED,),
    ),
    Mutant(
        "work dispatched to the new life is taken from it",
        "orchestrator/core/executions/lost_workers.py",
        'worker_id=worker_id, scheduled_at__lt=F("worker__registered_at")',
        "worker_id=worker_id",
        (EVACUATION,),
    ),
    Mutant(
        "what a worker without a free slot holds is dispatched again",
        "orchestrator/core/executions/dispatching.py",
        "if running.get(pk, 0) < capacity]",
        "]",
        (SCHEDULING,),
    ),
    Mutant(
        "cordoned worker is chosen",
        "orchestrator/core/fleet/placement.py",
        "if not seat.is_cordoned\n                and seat.serves(need.queue)",
        "if seat.serves(need.queue)",
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
        "orchestrator/core/executions/lost_workers.py",
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
        "orchestrator/core/maintenance.py",
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
        "if silent is None or silent.is_fresh(at):",
        "if silent is None:",
        (FLEET,),
    ),
    Mutant(
        "heartbeat that took long is followed by a whole pause",
        "workers/heartbeat.py",
        "due_seconds = self.interval_seconds - since if renewed else 0.0",
        "due_seconds = self.interval_seconds if renewed else 0.0",
        (("tests/workers/test_heartbeat.py",),),
    ),
    Mutant(
        "worker whose heartbeat is refused goes on",
        "workers/heartbeat.py",
        'self.agent.departure.die("it was declared lost or replaced")',
        "pass",
        (_scenario("zombies"),),
    ),
    Mutant(
        "acknowledged before the claim",
        "workers/desk.py",
        "            attempt.desk = self\n",
        "            attempt.desk = self\n            attempt.acknowledge_message()\n",
        (DESK, _scenario("killed", "queue_ttl", "server_faults")),
    ),
    Mutant(
        "list acknowledged with the first claim of its attempts",
        "workers/attempts.py",
        "        if not self.left:",
        "        if True:",
        (STRATEGIES,),
    ),
    Mutant(
        "started without its claim",
        "workers/desk.py",
        "            execution = granted.pop(attempt.key, None)",
        "            execution = granted.get(attempt.key)",
        (DESK, _scenario("duplicates")),
    ),
    Mutant(
        "claim without an answer is never given back",
        "workers/audit.py",
        "        if twice := unknown & self._unknown:",
        "        if twice := set():",
        (AUDIT,),
    ),
    Mutant(
        "what is in nobody's hand is given back at once",
        "workers/audit.py",
        "        if twice := unknown & self._unknown:",
        "        if twice := unknown:",
        (AUDIT,),
    ),
    Mutant(
        "end of an attempt is told to nobody who waits for its slot",
        "workers/desk.py",
        "        if is_left or (self.waiting and self.worth_asking(self.room())):\n"
        "            self.agent.loop.wake()\n",
        "        pass\n",
        (DESK,),
    ),
    Mutant(
        "what was claimed long ago begins all the same",
        "workers/desk.py",
        "            elif attempt.is_late:\n",
        "            elif False:\n",
        (DESK,),
    ),
    Mutant(
        "a slot begins what is late",
        "workers/desk.py",
        "                or attempt.is_late\n",
        "",
        (SLOTS,),
    ),
    Mutant(
        "what the pool brings to its slot too late begins all the same",
        "workers/child.py",
        "        if time.monotonic() > call.begin_by:\n",
        "        if False:\n",
        (("tests/workers/test_child.py",),),
    ),
    Mutant(
        "the pool is not told by when an attempt begins",
        "workers/attempts.py",
        "            begin_by=self.begin_by,\n",
        "",
        (SLOTS,),
    ),
    Mutant(
        "what did not begin in its slot ends",
        "workers/attempts.py",
        "        if outcome.reason == Reason.GIVEN_BACK and not self.is_canceling:\n",
        "        if False:\n",
        (SLOTS,),
    ),
    Mutant(
        "a deadline is no limit of the time to begin",
        "workers/desk.py",
        "min(BEGIN_WITHIN_SECONDS, left.total_seconds())",
        "BEGIN_WITHIN_SECONDS",
        (DESK,),
    ),
    Mutant(
        "the time since the claim is not counted",
        "workers/attempts.py",
        "waited_seconds = time.monotonic() - self.claimed_at",
        "waited_seconds = 0.0",
        (SLOTS,),
    ),
    Mutant(
        "slot goes on while a probe waits for it",
        "workers/desk.py",
        "            if self._is_probed or not self._may_start():",
        "            if not self._may_start():",
        (SLOTS,),
    ),
    Mutant(
        "slot begins what was cancelled",
        "workers/desk.py",
        "                or attempt.is_canceling\n",
        "",
        (SLOTS,),
    ),
    Mutant(
        "what a slot has taken counts as not begun",
        "workers/desk.py",
        "            attempt.job = IN_ITS_SLOT  # or it would count as not begun\n",
        "",
        (SLOTS,),
    ),
    Mutant(
        "slot takes another one than it has looked at",
        "workers/desk.py",
        "                with self._taking:  # a slot may be looking at the first one\n",
        "                if True:\n",
        (SLOTS,),
    ),
    Mutant(
        "slots go on when the loop has ended",
        "workers/desk.py",
        "is_over = self._is_closed or self.agent.is_stopping",
        "is_over = self.agent.is_stopping",
        (SLOTS,),
    ),
    Mutant(
        "pool keeps the first attempt of a slot that goes on",
        "workers/desk.py",
        "next_one: tuple[Attempt, Call] | None = handed.pop()",
        "next_one: tuple[Attempt, Call] | None = handed[0]",
        (SLOTS,),
    ),
    Mutant(
        "more run at once than there are slots",
        "workers/desk.py",
        "bool(self.ready) and self.idle_slots() > 0 and",
        "bool(self.ready) and",
        (SLOTS,),
    ),
    Mutant(
        "action begins, and Celery acknowledges from its thread",
        "workers/attempts.py",
        "    def acknowledge(self) -> None:",
        "    def acknowledge_not(self) -> None:",
        (STRATEGIES,),
    ),
    Mutant(
        "held row acknowledged and dropped",
        "workers/desk.py",
        "                if attempt.key in answer.held:",
        "                if False:",
        (DESK,),
    ),
    Mutant(
        "end of a held row dropped",
        "workers/database_threads.py",
        "        if held:\n            self._record_later",
        "        if False:\n            self._record_later",
        (CLERKS,),
    ),
    Mutant(
        "end that PostgreSQL refuses is repeated with all others",
        "workers/database_threads.py",
        "        return False  # parts take less\n"
        "    return database.is_outage(error) or state[:2] in SAME_FOR_ALL",
        "        return True\n    return isinstance(error, DatabaseError)",
        (CLERKS,),
    ),
    Mutant(
        "result is lost to an error that no end is to blame for",
        "workers/database_threads.py",
        "    return database.is_outage(error) or state[:2] in SAME_FOR_ALL",
        "    return database.is_outage(error)",
        (CLERKS,),
    ),
    Mutant(
        "results of any size go into one statement",
        "workers/database_threads.py",
        "        if part and total + characters > BATCH_CHARACTERS:",
        "        if False:",
        (CLERKS,),
    ),
    Mutant(
        "fault ends the thread that records ends",
        "workers/database_threads.py",
        "                except Exception:  # without this thread",
        "                except KeyError:  # without this thread",
        (CLERKS,),
    ),
    Mutant(
        "end of a held row is dropped where no thread can be started",
        "workers/database_threads.py",
        "        except RuntimeError:  # too many threads: the other ends wait, too",
        "        except KeyError:",
        (CLERKS,),
    ),
    Mutant(
        "key is refused while the database is away",
        "workers/database_threads.py",
        "        if not (is_away or self.agent.is_stopping):",
        "        if True:",
        (OPENING,),
    ),
    Mutant(
        "what was claimed without its keys waits for the audit",
        "workers/database_threads.py",
        "        self._unbegun |= {each.key for each in granted if each.pk not in contents}\n",
        "",
        (CLERKS,),
    ),
    Mutant(
        "deep result is not masked",
        "orchestrator/core/masking.py",
        "        except RecursionError:\n            return True",
        "        except RecursionError:\n            return False",
        (MASKING,),
    ),
    Mutant(
        "result that cannot be masked keeps its slot",
        "workers/desk.py",
        "        except Exception as error:  # noqa: BLE001 - its text, or traceback, might quote",
        "        except KeyError as error:  # its text, or traceback, might quote",
        (DESK,),
    ),
    Mutant(
        "what is about to start is taken back at the same time",
        "workers/desk.py",
        "        with self._taking:\n            return self.ready.popleft()",
        "        if True:\n            return self.ready.popleft()",
        (DESK,),
    ),
    Mutant(
        "lost attempt keeps its slot where no thread can be started",
        "workers/attempts.py",
        "        except RuntimeError:  # too many threads",
        "        except KeyError:  # too many threads",
        (("tests/workers/test_attempts.py",),),
    ),
    Mutant(
        "failure of a check is noted after its answer alone",
        "workers/fitness.py",
        'self.failing[name] = ""  # first',
        "pass  # first",
        (("tests/workers/test_fitness.py",),),
    ),
    Mutant(
        "heartbeat ends at an error that is not the database's",
        "workers/heartbeat.py",
        "        except Exception:  # of any kind: it may be renewed",
        "        except KeyError:  # of any kind: it may be renewed",
        (("tests/workers/test_heartbeat.py",),),
    ),
    Mutant(
        "probes end at an error that is not the database's",
        "workers/probes.py",
        "        except Exception:  # of any kind: without this thread",
        "        except KeyError:  # of any kind: without this thread",
        (("tests/workers/test_probes.py",),),
    ),
    Mutant(
        "cancel for which no thread could be started is not tried again",
        "workers/canceller.py",
        "                attempt.is_canceling = False\n",
        "",
        (("tests/workers/test_canceller.py",),),
    ),
    Mutant(
        "drain is announced once",
        "workers/departure.py",
        "            if not is_announced and time.monotonic() >= announce_at:",
        "            if not announce_at:",
        (STOPPING,),
    ),
    Mutant(
        "error ends the thread that kills what runs",
        "workers/departure.py",
        '            attempted(self._kill_when_due, "could not kill what runs")',
        "            self._kill_when_due()",
        (STOPPING,),
    ),
    Mutant(
        "what no thread could give back stays in hand",
        "workers/returns.py",
        "            log.exception(NOT_GIVEN_BACK)\n"
        "            self.agent.desk.in_hand.let_go(keys)",
        "            log.exception(NOT_GIVEN_BACK)",
        (STOPPING,),
    ),
    Mutant(
        "attempts wait for their release as long as a fetch takes",
        "workers/releases.py",
        "                self._take()\n                self._settle()\n",
        "                self._take()\n",
        (("tests/workers/test_bringing_releases.py",),),
    ),
    Mutant(
        "channel of the loop used by another thread as the worker stops",
        "workers/desk.py",
        "        if not self.agent.is_stopping:\n            self.claim_waiting()",
        "        self.claim_waiting()",
        (STOPPING,),
    ),
    Mutant(
        "worker given work before it consumes",
        "workers/agent.py",
        "            is_ready=False,",
        "            is_ready=True,",
        (_scenario("shutdown"),),
    ),
    Mutant(
        "what is not idempotent goes on elsewhere when its worker stops",
        ATTEMPT,
        "Reason.WORKER_STOPPED and execution.action.idempotent",
        "Reason.WORKER_STOPPED",
        (ATTEMPTS,),
    ),
    Mutant(
        "prefetch unlimited",
        "workers/loop.py",
        "            self.consumer.qos.value = step",
        "            self.consumer.qos.value = 0",
        (DESK, _scenario("queue_ttl")),
    ),
    # --- messages ---
    Mutant(
        "not mandatory",
        "orchestrator/core/lanes.py",
        "                mandatory=message.mandatory,",
        "                mandatory=False,",
        (PUBLISHER,),
    ),
    Mutant(
        "confirms not awaited",
        "orchestrator/core/lanes.py",
        "        while self.unconfirmed:",
        "        while False:",
        (PUBLISHER,),
    ),
    Mutant(
        "refusal (nack) of the broker ignored",
        "orchestrator/core/publisher.py",
        "    if refused is not None:",
        "    if False:",
        (PUBLISHER,),
    ),
    Mutant(
        "dispatch published by its own thread, and its confirm not awaited",
        "orchestrator/core/relay.py",
        "                self._send([posted], are_posted=True)\n",
        "                pass\n",
        (RELAY,),
    ),
    Mutant(
        "dispatch published twice",
        "orchestrator/core/relay.py",
        "            self._posted = message\n",
        "            pass\n",
        (RELAY,),
    ),
    Mutant(
        "connection used by two threads at once",
        "orchestrator/core/relay.py",
        "        with self._using:\n            posted",
        "        if True:\n            posted",
        (RELAY,),
    ),
    Mutant(
        "dispatch published before the one before it is confirmed",
        "orchestrator/core/relay.py",
        "        is_resting = self._posted is None and",
        "        is_resting =",
        (RELAY,),
    ),
    Mutant(
        "who accepts waits for the thread that publishes",
        "orchestrator/core/relay.py",
        "self._using.acquire(blocking=False)",
        "self._using.acquire()",
        (RELAY,),
    ),
    Mutant(
        "worker queue without TTL",
        "orchestrator/core/topology.py",
        '{"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms} | _dead_lettering()',
        "_dead_lettering()",
        (TOPOLOGY,),
    ),
    Mutant(
        "worker queue without dead letter exchange",
        "orchestrator/core/topology.py",
        '{"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms} | _dead_lettering()',
        '{"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms}',
        (TOPOLOGY,),
    ),
    Mutant(
        "queues of one type, whatever the setting",
        "orchestrator/core/topology.py",
        "return {**own} if kind == CLASSIC else",
        "return {**own} if kind else",
        (TOPOLOGY,),
    ),
    Mutant(
        "silent host takes the time of the others",
        "orchestrator/core/brokers.py",
        "limit_seconds = hosts * settings.MUSTER.publish_timeout_seconds",
        "limit_seconds = settings.MUSTER.publish_timeout_seconds",
        (BROKERS,),
    ),
    Mutant(
        "silent host is asked first each time",
        "orchestrator/core/brokers.py",
        "_last_urls[self._alias] = self._url",
        "_last_urls[self._alias] = self._url if not self.alt else self.alt[0]",
        (BROKERS,),
    ),
    # --- dead letters ---
    Mutant(
        "drain acknowledges before the commit",
        LETTERS,
        """            total += settle(letters, now=read_clock())
            batch[-1].ack(multiple=True)
""",
        """            batch[-1].ack(multiple=True)
            total += settle(letters, now=read_clock())
""",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "drain ignores the attempt",
        LETTERS,
        "waiting.pop(attempt, None)",
        "next((e for key, e in waiting.items() if key[0] == attempt[0]), None)",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "of what a dead letter lists, one is settled",
        LETTERS,
        "for attempt in letter.attempts:",
        "for attempt in letter.attempts[:1]:",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "drain ignores the status",
        LETTERS,
        "            status=ExecutionStatus.SCHEDULED,\n",
        "",
        (DEAD_LETTERS,),
    ),
    Mutant(
        "foreign letter read as a dispatch",
        LETTERS,
        " for position, letter in enumerate(letters) if position not in answered]",
        " for letter in letters]",
        (GATE_LETTERS,),
    ),
    Mutant(
        "letter of a broker of gates read as a dispatch",
        LETTERS,
        "        if broker != brokers.DEFAULT:",
        "        if False:",
        (GATE_LETTERS,),
    ),
    Mutant(
        "dead letter of an answered task answered again",
        "orchestrator/queues/gates/intake.py",
        "(ticket.told_at is None or is_copy)",
        "ticket.told_at is None",
        (GATE_LETTERS,),
    ),
    Mutant(
        "dead letter refused although its task has an execution",
        "orchestrator/queues/gates/judging.py",
        "    if known is not None:\n        is_open",
        "    if known is not None and not delivery.died_of:\n        is_open",
        (GATE_LETTERS,),
    ),
    Mutant(
        "count of deliveries believed of a classic queue",
        "orchestrator/queues/gates/judging.py",
        "if queue_type == QUORUM else 0",
        "if True else 0",
        (GATE_JUDGING,),
    ),
    Mutant(
        "message that cannot be decoded breaks its connection",
        "orchestrator/core/undecodable.py",
        "serialization.PROPERTY_CLASSES[Basic.CLASS_ID] = _properties ",
        "",
        (UNDECODABLE,),
    ),
    Mutant(
        "routing key that is not UTF-8 breaks its connection",
        "orchestrator/core/undecodable.py",
        "abstract_channel.loads = _arguments\n",
        "",
        (UNDECODABLE,),
    ),
    Mutant(
        "message that cannot be decoded taken in",
        "orchestrator/queues/gates/shape.py",
        "    if brokers.UNDECODED in properties:",
        "    if False:",
        (GATE_LINKS,),
    ),
    Mutant(
        "message refused that a stalled broker may have forwarded",
        "tasks/gates.py",
        "is Does.FORWARD and fate.is_final:",
        "is Does.FORWARD:",
        (KEEPER,),
    ),
    Mutant(
        "copy whose answer is not taken asked for at each turn",
        "tasks/gates.py",
        "        if self.again and time.monotonic() >= self.again_at:",
        "        if self.again:",
        (KEEPER,),
    ),
    Mutant(
        "copy whose answer is never taken held for ever",
        "tasks/gates.py",
        "        over = [held for held, _ in self.again if held.since < limit]",
        "        over: list[Held] = []",
        (KEEPER,),
    ),
    Mutant(
        "channel closed on which a copy is still to be acknowledged",
        "tasks/gates.py",
        "chain(input.postponed, copies, *self.held.values())",
        "chain(input.postponed, *self.held.values())",
        (KEEPER,),
    ),
    Mutant(
        "task taken in for which there is no worker",
        "orchestrator/core/executions/requests.py",
        "    names = [new.queue for new in news]\n    refusals +=",
        "    names = [None for new in news]\n    refusals +=",
        (GATE_INTAKE,),
    ),
    Mutant(
        "second of two equal refusals has the key of an earlier one",
        "orchestrator/queues/gates/intake.py",
        "uuid4().bytes",
        "str(row.position).encode()",
        (GATE_INTAKE,),
    ),
    Mutant(
        "headers of an answer larger than a frame",
        "orchestrator/queues/gates/headers.py",
        "        if size <= left:",
        "        if True:",
        (("tests/queues/gates/test_headers.py",),),
    ),
    # --- the code of packs ---
    Mutant(
        "given back before its worker is known to lack the code",
        ATTEMPT,
        "    unloaded.note_missing_code(ended, now=now)\n",
        "",
        (MISSING_CODE,),
    ),
    Mutant(
        "what could not be loaded counts as a failure",
        ATTEMPT,
        "    if reason is Reason.PACK_UNAVAILABLE:\n        return True\n",
        "",
        (MISSING_CODE,),
    ),
    Mutant(
        "what could not be loaded is placed by an old view of the fleet",
        "orchestrator/core/executions/assigning.py",
        "    placement.heed(unloaded.among(executions), now=now)\n",
        "",
        (MISSING_CODE,),
    ),
    Mutant(
        "worker chosen for code that it lacks",
        "orchestrator/core/fleet/needs.py",
        "            and not any(name in missing_code for name in self.code)\n",
        "",
        (MISSING_CODE,),
    ),
    Mutant(
        "module that the action's own module lacks taken for the action",
        "workers/isolated/functions.py",
        '            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):\n'
        "                raise\n",
        "",
        (CODE_WATCH,),
    ),
    Mutant(
        "failed import remembered until the worker restarts",
        "workers/isolated/functions.py",
        "            sys.modules.pop(name, None)\n",
        "            pass\n",
        (CODE_WATCH,),
    ),
    # --- tasks ---
    Mutant(
        "tasks are stale by a clock that was set meanwhile",
        "orchestrator/workflows/engine/staleness.py",
        "if overstepped and moment.was_set():",
        "if False:",
        (("tests/workflows/test_staleness.py",),),
    ),
    Mutant(
        "stale task is moved at a time of before its lock",
        "orchestrator/workflows/engine/staleness.py",
        "        at = moment()\n",
        "        at = now\n",
        (("tests/workflows/test_staleness.py",),),
    ),
    Mutant(
        "quarantined task is advanced",
        "orchestrator/workflows/engine/advancing.py",
        "if not (t.task.is_terminal or t.task.is_quarantined)",
        "if not t.task.is_terminal",
        (TRIES,),
    ),
    Mutant(
        "number that another executor has just written counts as its death",
        "orchestrator/workflows/engine/tries.py",
        "return now - seen.at >= CERTAIN_AFTER_SECONDS",
        "return True",
        (TRIES,),
    ),
    Mutant(
        "outage of the database counts as a try",
        "orchestrator/workflows/engine/polling.py",
        "            tries.suspend(task_id)\n            raise\n",
        "            raise\n",
        (TRIES,),
    ),
    Mutant(
        "what failed together waits for nobody's death",
        "orchestrator/workflows/engine/polling.py",
        "        for task_id in taken - advanced:\n            tries.suspend(task_id)\n",
        "        pass\n",
        (TRIES,),
    ),
    Mutant(
        "outage of a group keeps a task from being tried alone",
        "orchestrator/workflows/engine/polling.py",
        'self.outages += "task_id" in named',
        "self.outages += 1",
        (TRIES,),
    ),
    Mutant(
        "task in other hands is advanced with the others",
        "orchestrator/workflows/engine/tries.py",
        'WHERE id IN ({", ".join(["%s"] * len(task_ids))}) AND {_FREE}',
        'WHERE id IN ({", ".join(["%s"] * len(task_ids))})',
        (TRIES,),
    ),
    Mutant(
        "tasks advanced together see each other's results",
        "orchestrator/workflows/engine/enqueuing.py",
        "entries[task_id][name].append(Entry(state, result))",
        "entries[next(iter(entries))][name].append(Entry(state, result))",
        (("tests/workflows/test_advancing.py",),),
    ),
    # --- not now ---
    Mutant(
        "deferral spends a retry",
        ATTEMPT,
        'return "defer", move(execution, result=result, **deferring.pause(execution, result, now))',
        'return "retry", move(execution, result=result, retry_count=execution.retry_count + 1, '
        "**deferring.pause(execution, result, now))",
        (DEFERRING,),
    ),
    Mutant(
        "deferral past the deadline",
        DEFERRALS,
        "    if now >= end.execution.deadline_at:",
        "    if False:",
        (DEFERRING,),
    ),
    Mutant(
        "deferred before its worker is known to pause",
        DEFERRALS,
        "    _pause_workers(deferred, terms, now)\n",
        "",
        (DEFERRING,),
    ),
    Mutant(
        "every deferral waits as long as the first",
        DEFERRALS,
        "earlier=earlier.get(end.execution.pk, 0)",
        "earlier=0",
        (DEFERRING,),
    ),
    Mutant(
        "deferral is placed by an old view of the fleet",
        "orchestrator/core/executions/unloaded.py",
        "(Reason.PACK_UNAVAILABLE, Reason.TASK_REJECTED, Reason.QUEUE_PAUSED)",
        "(Reason.PACK_UNAVAILABLE,)",
        (DEFERRING,),
    ),
    Mutant(
        "pause of an earlier life",
        "orchestrator/core/fleet/lives.py",
        "worker.queue_pauses = {}, {}, {}",
        "_ = {}, {}, {}",
        (PAUSES,),
    ),
    Mutant(
        "pause of a clock that was ahead",
        "orchestrator/core/models/fleet.py",
        "if now < until <= now + LONGEST_PAUSE}",
        "if now < until}",
        (PAUSES,),
    ),
    Mutant(
        "worker that pauses an action is chosen for it",
        "orchestrator/core/fleet/placement.py",
        "                and need.paused not in seat.paused\n                and need.may_go_to",
        "                and need.may_go_to",
        (PLACEMENT,),
    ),
    Mutant(
        "action that all pause is rejected",
        "orchestrator/core/fleet/placement.py",
        "        if need.paused and self._candidates(",
        "        if False and self._candidates(",
        (PLACEMENT,),
    ),
    Mutant(
        "pause of a queue is nothing to placement",
        "orchestrator/core/fleet/placement.py",
        "            if queue_of(name) in seat.paused:",
        "            if False:",
        (PLACEMENT,),
    ),
    Mutant(
        "acceptance places where the action is paused",
        PLACING_FILE,
        "(worker.queue_pauses ->> %(paused)s)::timestamptz <= %(now)s",
        "(worker.queue_pauses ->> %(paused)s)::timestamptz IS NOT NULL",
        (PLACING,),
    ),
    Mutant(
        "worker starts what it pauses",
        "workers/desk.py",
        "if self.agent.pauses.holds(attempt.execution) and not attempt.is_canceling:",
        "if False:",
        (OF_WORKER,),
    ),
    Mutant(
        "deferral is noted by nobody on its worker",
        "workers/desk.py",
        "            self.agent.pauses.note(attempt.execution)",
        "            pass",
        (OF_WORKER,),
    ),
    Mutant(
        "health check ends a pause that was prolonged meanwhile",
        "workers/pauses.py",
        "                if self._pauses[name].noted_at == noted_at:\n",
        "                if True:\n",
        (OF_WORKER,),
    ),
    Mutant(
        "queue chooses what its workers call",
        "orchestrator/core/health_checks.py",
        "if path and path in allowed else None",
        "if path else None",
        (OF_WORKER,),
    ),
    Mutant(
        "command that is not idempotent is run again for an exit status",
        "orchestrator/core/packs/runtimes.py",
        'options.get("exit_75", "defer" if idempotent else "fail")',
        'options.get("exit_75", "defer")',
        (("tests/workers/test_task_rejected.py",),),
    ),
    Mutant(
        "deferral of what its worker stops has an unknown outcome",
        "workers/attempts.py",
        "reason not in (Reason.RUN_TIMEOUT, Reason.TASK_REJECTED)",
        "reason is not Reason.RUN_TIMEOUT",
        (("tests/workers/test_attempts.py",),),
    ),
    # --- queues ---
    Mutant(
        "queue with a limit is not held while it is counted",
        QUEUED_FILE,
        "    queue_terms.queues().hold(limited)\n",
        "",
        (QUEUED,),
    ),
    Mutant(
        "retry lane does not count for the limit of its queue",
        QUEUED_FILE,
        "running[queue_of(name)] += number",
        "running[name] += number",
        (QUEUED,),
    ),
    Mutant(
        "what is placed at once may exceed the limit",
        QUEUED_FILE,
        "if name not in left or taken[name] <= left[name]:",
        "if name:",
        (QUEUED,),
    ),
    Mutant(
        "what is read of a backlog may exceed the limit",
        QUEUED_FILE,
        "min(number, left.get(name, number))",
        "number",
        (QUEUED,),
    ),
    Mutant(
        "old view of the fleet chooses the workers of a limited queue",
        QUEUED_FILE,
        "    placement.correct(limited, held)\n",
        "",
        (QUEUED,),
    ),
    Mutant(
        "queue with few slots of a worker is not held",
        QUEUED_FILE,
        "known.max_running is not None or placement.limits_slots(name)",
        "known.max_running is not None",
        (QUEUED,),
    ),
    Mutant(
        "paused queue starts its work",
        QUEUED_FILE,
        "for name, known in terms.items() if not known.is_paused}",
        "for name, known in terms.items()}",
        (QUEUED,),
    ),
    Mutant(
        "backlog has what is past its deadline",
        BACKLOG_FILE,
        "AND execution.status = ANY(%(backlog)s) AND execution.deadline_at > %(now)s",
        "AND execution.status = ANY(%(backlog)s)",
        (BACKLOG,),
    ),
    Mutant(
        "backlog has what waits for its retry",
        BACKLOG_FILE,
        "AND (execution.next_retry_at IS NULL OR execution.next_retry_at <= %(now)s",
        "AND (execution.next_retry_at IS NOT NULL OR execution.next_retry_at IS NULL",
        (BACKLOG,),
    ),
    Mutant(
        "look at the default queue reads what all workers pause",
        BACKLOG_FILE,
        "          AND execution.action_ref <> ALL(%(paused)s::text[])\n",
        "",
        (BACKLOG,),
    ),
    Mutant(
        "look at the default queue leaves out what is pinned",
        BACKLOG_FILE,
        "(execution.pinned_worker_id IS NOT NULL OR (",
        "(FALSE OR (",
        (BACKLOG,),
    ),
    Mutant(
        "executor runs what it takes in batches as a task of its own",
        "tasks/unreadable.py",
        "return lambda task: task in elsewhere",
        "return lambda task: False",
        (CONSUMERS,),
    ),
    Mutant(
        "executor takes what is for workers, and loses it",
        "tasks/unreadable.py",
        "elsewhere = [*app_parts.lists(), messages.RUN, messages.CANCEL]",
        "elsewhere = [*app_parts.lists()]",
        (CONSUMERS,),
    ),
    Mutant(
        "a batch counts as one row of a plan",
        STATEMENTS_FILE,
        "max((len(values[name]) for name in self._lists), default=1)",
        "1",
        (STATEMENTS,),
    ),
    Mutant(
        "a registration is no heartbeat",
        "workers/heartbeat.py",
        "        self.renewed_at = asked_at\n        self.sentinel.renew()",
        "        self.sentinel.renew()",
        (("tests/workers/test_heartbeat.py",),),
    ),
    Mutant(
        "a list of ids counts as one row of a plan",
        STATEMENTS_FILE,
        "[*UNNESTED.findall(sql), *lists]",
        "UNNESTED.findall(sql)",
        (STATEMENTS,),
    ),
    Mutant(
        "a query about no id is composed",
        "orchestrator/core/models/prepared.py",
        "        if not ids:  #",
        "        if False:  #",
        (("tests/core/api/test_executions.py",),),
    ),
    Mutant(
        "plan is renewed before PostgreSQL has one for all values",
        STATEMENTS_FILE,
        "self._rows > PLANNED_AFTER and self._uses > LEAST_USES",
        "self._rows > PLANNED_AFTER",
        (STATEMENTS,),
    ),
    Mutant(
        "plan is kept that a migration has made useless",
        STATEMENTS_FILE,
        "            self._renew()  # a migration has changed a column since it was planned\n",
        "",
        (STATEMENTS,),
    ),
    Mutant(
        "what is full keeps others of the default queue from their turn",
        SCHEDULING_FILE,
        "            busy=look.busy,\n",
        "",
        (SCHEDULING,),
    ),
    Mutant(
        "what waits for a worker that is gone keeps others from their turn",
        "orchestrator/core/executions/assigning.py",
        "passed = [*unplaced.full, *unplaced.waiting]",
        "passed = [*unplaced.full]",
        (SCHEDULING,),
    ),
    Mutant(
        "what is rejected keeps others from their turn",
        "orchestrator/core/executions/assigning.py",
        "        if now >= self._rejects_until:",
        "        if False:",
        (SCHEDULING,),
    ),
    Mutant(
        "interval that no calendar has stops the watchdog",
        "orchestrator/core/schedule.py",
        "one * min(every, LONGEST // one)",
        "one * every",
        (MAINTENANCE,),
    ),
    Mutant(
        "change of a policy's key removes what is counted meanwhile",
        "orchestrator/policies/changes.py",
        "    policy.buckets.filter(pk__in=held).delete()",
        "    policy.buckets.all().delete()",
        (("tests/policies/test_races.py",),),
    ),
    Mutant(
        "long line for a quota stops the executor",
        "orchestrator/policies/figures.py",
        "min(1 + (ahead - self.free) // policy.limit, most)",
        "1 + (ahead - self.free) // policy.limit",
        (("tests/policies/test_waiting.py",),),
    ),
    Mutant(
        "what is full keeps others of a queue from their turn",
        QUEUED_FILE,
        "wanted, now=now, busy=look.busy)",
        "wanted, now=now)",
        (QUEUED,),
    ),
    Mutant(
        "worker that is away gets all that is pinned to it",
        "orchestrator/core/fleet/placement.py",
        "            self._add_absent(worker_id)\n",
        "            pass\n",
        (SCHEDULING,),
    ),
    Mutant(
        "worker is kept empty for a suspect whose queue is at its limit",
        "orchestrator/core/fleet/quarantine.py",
        "        closed |= _at_their_limits({name: terms[name] for name in queues - closed})\n",
        "",
        (QUEUED,),
    ),
    Mutant(
        "policy that cannot be read keeps a batch from its ends",
        ATTEMPT,
        "    except InvalidRetryPolicy:\n",
        "    except ZeroDivisionError:\n",
        (ATTEMPTS,),
    ),
    Mutant(
        "delay that no calendar has",
        "orchestrator/core/retry_policy.py",
        "most = min(self.max_backoff_ms, LONGEST_DELAY_MS)",
        "most = self.max_backoff_ms",
        (ATTEMPTS,),
    ),
    Mutant(
        "what is held is sent again at each tick",
        "orchestrator/core/executions/dispatching.py",
        "[each for each in due if each.pk in noted]",
        "due",
        (HELD_ROWS,),
    ),
    Mutant(
        "what no queue takes keeps its keeper from all else",
        "tasks/gates.py",
        "            input.postponed += [",
        "            input.received += [",
        (
            (
                "tests/scenarios/test_gate_faults.py::test_deleted_rejected_queue_keeps_no_other_task_"
                "waiting_and_is_made_again",
            ),
        ),
    ),
    Mutant(
        "sweep may walk the history",
        ATTEMPT,
        'overdue.without_contents().order_by("queue", "-priority", "pk")',
        "overdue.without_contents()",
        (SWEEPING,),
    ),
)
