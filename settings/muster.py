"""Muster's own settings: typed, read from `MUSTER_*` once, wrong values refused at start."""

from __future__ import annotations

import difflib
import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.core.exceptions import ImproperlyConfigured

PREFIX = "MUSTER_"
METRICS_ACCESS = ("loopback", "token", "anyone")
DOCS_ACCESS = ("known", "anyone")
TLS = ("off", "on")
REMOTE_CONTROL = ("off", "inspect", "on")
LONGEST_PAUSE_SECONDS = 3_600
ISOLATION = ("trusted", "process", "user", "container")
QUEUE_TYPES = ("classic", "quorum")
BOUNDS: Mapping[str, tuple[float, float]] = {
    "default_timeout_seconds": (0.001, 7 * 86_400),
    "deadline_seconds": (0.001, 366 * 86_400),
    "scheduled_timeout_seconds": (0.001, 366 * 86_400),
    "task_max_waiting_for_dependencies_minutes": (0.001, 5_256_000),
    "task_max_waiting_for_retry_minutes": (0.001, 5_256_000),
    "task_max_steps_in_process_minutes": (0.001, 5_256_000),
    "task_max_duration_minutes": (0.001, 5_256_000),
}
"""The least and the most of settings that stand in for what an action, a request or a template does
not say, and have the same bounds."""
UNITS: Mapping[str, float] = {
    "ms": 0.001,
    "seconds": 1,
    "minutes": 60,
    "hours": 3_600,
    "days": 86_400,
}
"""Seconds of the units in which names of settings end."""
LONGEST_SECONDS = 36_500 * 86_400
"""Of any setting: a date that is so far away can still be reckoned with."""


@dataclass(frozen=True, kw_only=True)
class Muster:
    """All settings, with units in their names. `docs/reference/settings.md` is generated from
    here."""

    namespace: str = "muster"
    """Prefix of exchanges and shared queues, so that several installations can share a broker."""

    data_dir: str = "var"
    """Directory of the embedded database, the embedded broker and generated secrets."""

    environment: str = "production"
    """The environment whose overrides apply to tasks: one of the `environments` of their
    templates."""

    worker_queue_ttl_ms: int = 300_000
    """Longest time that a message waits for its worker before it is dead-lettered."""

    dlx_queue_ttl_ms: int = 86_400_000
    """Longest time that a dead letter waits for the drain."""

    queue_type: str = "classic"
    """The type of all queues that outlive a connection: `classic`, or `quorum` for a RabbitMQ of
    several nodes, where a classic queue is away with its node. The same for all services; to
    change it: `manage.py topology migrate`."""

    scheduled_timeout_seconds: float = 300.0
    """Longest time from a dispatch to its start when neither the action nor the request says so.
    Counts with the queue's TTL: the shorter of both."""

    start_grace_seconds: float = 10.0
    """Added to the TTL to give `start_by`, so that broker and sweep never race for the same row."""

    run_grace_seconds: float = 10.0
    """Added to the timeout to give `run_deadline_at`: the worker's own limit acts first."""

    default_timeout_seconds: float = 600.0
    """Longest run of an action when neither it nor the request says so."""

    deadline_seconds: float = 86_400.0
    """Longest time from the acceptance of an execution to its end."""

    defer_seconds: float = 5.0
    """Wait of an execution whose action said that it cannot begin now, if neither the action nor
    its queue says how long. Doubles each time, up to a minute."""

    defer_pause_seconds: float = 30.0
    """Time for which a worker then takes nothing more of that queue, if the queue does not say how
    long; of work without a queue, nothing more of that action."""

    heartbeat_interval_seconds: float = 10.0
    """Interval at which a worker renews its heartbeat."""

    staleness_multiplier: float = 3.0
    """A worker is stale after this many missed heartbeat intervals."""

    health_check_interval_seconds: float = 30.0
    """Interval at which a worker checks its health; every 5 s while a check fails."""

    health_checks: str = "disk_free=100MB"
    """Checks besides those of queue, loop and pool, separated by commas: `disk_free=100MB`,
    `memory_free=5%`, dotted paths of your own callables."""

    queue_health_checks: str = ""
    """Dotted paths of callables that queues may name as their health check, separated by commas.
    Workers call them in their own process, so a queue cannot name others."""

    retire_after_hours: float = 24.0
    """Time after which the queues of a worker that is gone are removed."""

    keep_executions_days: float = 30.0
    """Age at which executions that ended are removed, with their histories; `inf` keeps them. Those
    of a task stay as long as it, and those with a pending investigation stay. As in all
    settings of an age, less than an hour counts as an hour: whoever waits for an end has to read
    it."""

    keep_executions: float = math.inf
    """Most executions that are kept, if that is less: the oldest go first, but none that ended
    within the last hour."""

    keep_output_days: float = 1.0
    """Age at which the live output of executions that ended is removed; `inf` keeps it as long as
    the execution. What a command's result has of its output stays with the result."""

    keep_tasks_days: float = 30.0
    """Age at which tasks that ended are removed, with their steps and histories; `inf` keeps them.
    A task in error has not ended."""

    keep_tasks: float = math.inf
    """Most tasks that are kept, as for executions."""

    keep_entries_days: float = 90.0
    """Age at which closed investigations are removed; `inf` keeps them."""

    keep_pending_letters_days: float = math.inf
    """Age at which pending investigations of dead letters are closed as `permanently_failed`;
    `inf` leaves them to people. It counts from the last identical letter, and from the last
    change. Those of tasks, sensors and rules, and those that somebody opened, stay open."""

    keep_workers_days: float = 30.0
    """Age at which retired workers are removed, with their histories; `inf` keeps them. A worker
    stays as long as there are executions from before it was retired."""

    keep_events_days: float = 30.0
    """Age at which events are removed, with the answers of rules to them; `inf` keeps them. What
    is reported with the key of an event that was removed is a new event."""

    keep_inquiries_days: float = 30.0
    """Age at which inquiries that ended are removed, once their executions are gone; `inf` keeps
    them."""

    keep_bulk_orders_days: float = 90.0
    """Age at which bulk orders that ended are removed, with what was refused; `inf` keeps them."""

    keep_tickets_days: float = 1.0
    """Age at which tickets of answered task messages are removed; `inf` keeps them. A copy of a
    message whose ticket was removed is a new task."""

    keep_policy_buckets_days: float = 1.0
    """Age at which buckets of policies that count nothing are removed; `inf` keeps them."""

    keep_minutes_days: float = 35.0
    """Age at which numbers by minute and by quarter of an hour are removed; `inf` keeps them."""

    keep_hours_days: float = 400.0
    """Age at which numbers by hour are removed; `inf` keeps them."""

    keep_causes_days: float = 35.0
    """Age at which causes of failures are removed that did not occur again, and the numbers and the
    list of failures of those that did; `inf` keeps them."""

    prune_interval_seconds: float = 60.0
    """Interval at which old rows are removed. It takes effect like
    `MUSTER_MAINTENANCE_INTERVAL_SECONDS`."""

    no_worker_grace_seconds: float = 60.0
    """Time for which waiting work survives a fleet without eligible workers."""

    maintenance_interval_seconds: float = 5.0
    """Interval at which beat runs the timeout monitor, the heartbeat check and the dead letter
    drain. Beat takes over a changed one when it starts, for each row of its schedule whose
    interval nobody has changed there."""

    dead_letter_enabled: bool = True
    """True if dead letters are drained. If `false`, they stay in their queue until its TTL, and the
    timeout monitor ends their executions. `manage.py dlq drain` works all the same."""

    staleness_detection_enabled: bool = True
    """True if stuck tasks are searched for. If `false`, no task goes stale; the view still shows
    which would."""

    staleness_interval_seconds: float = 300.0
    """Interval of the search for stuck tasks. It takes effect like
    `MUSTER_MAINTENANCE_INTERVAL_SECONDS`."""

    staleness_batch_size: int = 100
    """Most stale tasks that are handled in one transaction."""

    task_max_waiting_for_dependencies_minutes: float = 60.0
    """Longest time that a task may wait for steps in process, if its template does not say
    otherwise."""

    task_max_waiting_for_retry_minutes: float = 30.0
    """The same, for the time after its next attempt was due."""

    task_max_steps_in_process_minutes: float = 30.0
    """The same, for steps that run and do not end."""

    task_max_duration_minutes: float = 1_440.0
    """The same, for a task from its request to its end."""

    cancel_grace_seconds: float = 10.0
    """From SIGTERM to SIGKILL, for an action that is cancelled."""

    shutdown_timeout_seconds: float = 30.0
    """Longest time that a stopping worker waits for its running actions."""

    output_limit_bytes: int = 1_048_576
    """Most bytes that are kept of each output stream of an action."""

    action_output_mb: int = 256
    """An action that writes more than this to an output stream is ended, if it does not say
    otherwise. Actions of the isolation `trusted` have neither this limit nor the next two."""

    action_memory_mb: int = 2_048
    """Most memory of an action's processes together, if it does not say otherwise."""

    action_processes: int = 512
    """Most processes of an action at once, if it does not say otherwise."""

    least_isolation: str = "process"
    """The weakest isolation of actions: `trusted`, `process`, `user` or `container`. Only with
    `trusted` may packs run actions in the worker's own processes, where they reach all of its
    credentials."""

    action_user: str = ""
    """The user of all actions; empty is the worker's. Another user needs a worker that runs as
    root."""

    keyring: str = ""
    """File with the ring under which keys are sealed: 32 bytes in base64 a line, the first seals,
    all open. API, workers and sensor services read it. Empty is `keyring` in the data directory,
    which an embedded installation makes itself."""

    environments_dir: str = ""
    """Directory of the Python environments of packs; empty is `environments` in the data directory.
    With `MUSTER_ACTION_USER` it has to be another one, which that user can reach."""

    releases_dir: str = ""
    """Directory of the releases of packs that this host has fetched; empty is `releases` in the
    data directory. With `MUSTER_ACTION_USER` it has to be another one, which that user can
    reach."""

    pack_storage_dir: str = ""
    """Directory that all hosts share, for the content of releases; empty is the database. Django's
    `STORAGES["releases"]` of a settings module of your own counts before both."""

    pack_limit_mb: float = 64.0
    """Largest release of a pack: all its files together, and its archive."""

    keep_releases_hours: float = 24.0
    """Time after which the content of a release goes that is not installed any more, and that no
    open work needs."""

    http_allowed_networks: str = ""
    """Networks that HTTP actions may reach although they are not public, separated by commas:
    `10.1.0.0/16,127.0.0.1/32`."""

    container_engine: str = ""
    """`podman`, `docker`, or a path to one of them; empty is the first that answers."""

    command_identity: str = ""
    """The identity whose grants `manage.py` keeps to, `service:NAME` or `user:NAME`; empty: all is
    permitted. Who runs commands holds the database's credentials: this prevents mistakes, no
    attack."""

    tls: str = "off"
    """`on` if browsers and clients reach the API by https only, from a proxy or from `manage.py api
    --tls-certificate`: cookies are sent by https only, http is redirected, and browsers keep to
    https for a year (HSTS)."""

    container_networks: str = ""
    """Networks that container actions may join, separated by commas; empty is none. `host` gives
    them all that listens on this host."""

    metrics_access: str = "token"
    """Readers of `/metrics`: `token` requires a token with the permission `metrics.read`;
    `loopback` also allows this host without one, and with it everybody behind a proxy on this host
    that adds no header; `anyone` requires none."""

    docs_access: str = "known"
    """Readers of the API's page and document: `known` requires a token, or a login to the admin;
    `anyone` requires none."""

    max_request_bytes: int = 1_048_576
    """Largest accepted request body, and largest accepted `parameters`."""

    remote_control: str = "off"
    """The things that Celery's remote control may do here: `off` is nothing, `inspect` is to look
    (`celery inspect`, `celery status`, Flower), `on` is everything, such as to shut processes down.
    Who reaches the broker has it."""

    celery_events: bool = False
    """True if executors and workers send events to Celery's monitors (`celery events`, Flower)."""

    requests_per_minute: float = math.inf
    """Most API requests of one caller in a minute; `inf` is no limit. Counted over all API
    processes with `REDIS_URL`, otherwise in each. Further ones are answered 429."""

    refused_tokens_per_minute: float = 300.0
    """Most API tokens that are refused from one address in a minute; then unknown ones are answered
    429 without a look into the database. Counted like requests."""

    stream_clients: int = 1_000
    """Most clients of the streams of one process, a notifier or an API; further ones are answered
    429."""

    event_limit_bytes: int = 262_144
    """Largest accepted payload of an event, as JSON."""

    events_backlog_limit: int = 100_000
    """With this many events that no rule was asked about yet, no more are taken from outside."""

    hook_deliveries_per_minute: float = 60_000.0
    """Most deliveries that one webhook takes in a minute, in each API process. Further ones are
    answered 429; those without a valid signature do not count."""

    sensor_lease_seconds: float = 30.0
    """Time after which the sensors of a service that renews nothing are taken by another one."""

    sensor_file_roots: str = ""
    """Directories in which triggers of the type `core.file` may look, separated by commas; empty is
    none. Who may make such a trigger reads what is in them."""

    bulk_limit: int = 1_000
    """Most executions in one bulk request."""

    batch_size: int = 250
    """Most rows moved in one statement, and most messages in one batch."""

    publish_timeout_seconds: float = 3.0
    """Longest wait for the broker to take a connection or confirm a batch."""

    broker_ca: str = ""
    """File of the authority that signed the certificates of brokers, for `amqps://`; empty is the
    host's authorities."""

    broker_cert: str = ""
    """File of the certificate with which Muster shows brokers who it is, for `amqps://`. Needs
    `MUSTER_BROKER_KEY`."""

    broker_key: str = ""
    """File of the key of that certificate, without a passphrase."""

    gate_brokers: str = field(default="", repr=False)
    """Brokers of gates besides Muster's own, `ALIAS=URL`, separated by commas; each URL as
    `BROKER_URL`, of several hosts with `;`. `default` is `BROKER_URL`. A comma in a password is
    `%2C`."""

    gate_backoff_seconds: float = 0.2
    """First pause before a gate tries again to reach its broker; each further one is twice as
    long. It never gives up."""

    gate_max_backoff_seconds: float = 15.0
    """Longest pause between two attempts of a gate to reach its broker."""

    gate_hold_seconds: float = 1_500.0
    """Longest time that a gate with custody `result` leaves a delivery unacknowledged; then the row
    alone answers for it. Must be below the broker's `consumer_timeout`, 30 minutes by default."""

    database_statement_timeout_seconds: float = 30.0
    """PostgreSQL's `statement_timeout`: no statement of ours may hang a service."""

    database_prepares: bool = True
    """True if PostgreSQL prepares the statements that accept, claim and end executions. False for a
    pooler between them that does not keep prepared statements, such as PgBouncer before 1.21."""

    @property
    def staleness_seconds(self) -> float:
        """A heartbeat older than this makes a worker stale."""
        return self.heartbeat_interval_seconds * self.staleness_multiplier

    @property
    def task_limits_minutes(self) -> dict[str, float]:
        """The limits of tasks by their names: a state, or `duration`."""
        return {
            "waiting_for_dependencies": self.task_max_waiting_for_dependencies_minutes,
            "waiting_for_retry": self.task_max_waiting_for_retry_minutes,
            "steps_in_process": self.task_max_steps_in_process_minutes,
            "duration": self.task_max_duration_minutes,
        }


def from_environment(environ: Mapping[str, str]) -> Muster:
    """Read `MUSTER_*`; raises ImproperlyConfigured that names variable, value and expectation."""
    known = {field.name: field for field in fields(Muster)}
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {PREFIX}{near[0].upper()}?" if near else ""
            raise ImproperlyConfigured(f"{variable} is not a setting of Muster.{hint}")
        if name == "data_dir" and not text.strip():
            continue  # it would be the directory of the program
        values[name] = _parse(variable, text, kind=type(known[name].default))
    muster = Muster(**values)
    _refuse_endless(muster)
    _refuse_contradictions(muster)
    return muster


def _parse(variable: str, text: str, *, kind: type) -> Any:
    if kind is str:
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise ImproperlyConfigured(f"{variable}={text!r}: expected true or false.")
        return text == "true"
    try:
        number = kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise ImproperlyConfigured(f"{variable}={text!r}: expected {expected}.") from None
    if number <= 0:
        raise ImproperlyConfigured(f"{variable}={text!r}: expected a number above 0.")
    return number


def _refuse_endless(muster: Muster) -> None:
    """Refuse what is no number, and times with which no date can be reckoned. `inf` is for limits
    that are off, and for rows that are kept for ever."""
    for each in fields(muster):
        name, number = each.name, getattr(muster, each.name)
        if type(number) not in (int, float) or name in BOUNDS:
            continue
        may_be_endless = each.default == math.inf or (
            name.startswith("keep_") and name.endswith("_days")
        )
        if math.isinf(number) and may_be_endless:
            continue
        unit = name.rpartition("_")[2]
        if unit in UNITS:
            most = LONGEST_SECONDS / UNITS[unit]
            is_right, expected = number <= most, f"at most {most:.0f}"
        else:
            is_right = isinstance(number, int) or math.isfinite(number)
            expected = "a number"
        if not is_right:
            expected += " or inf" * may_be_endless
            raise ImproperlyConfigured(f"{PREFIX}{name.upper()}={number}: expected {expected}.")


def _refuse_contradictions(muster: Muster) -> None:
    if muster.staleness_multiplier < 2:
        raise ImproperlyConfigured(
            f"MUSTER_STALENESS_MULTIPLIER={muster.staleness_multiplier}: expected at least 2, "
            "otherwise one late heartbeat declares a healthy worker lost."
        )
    if muster.worker_queue_ttl_ms < muster.staleness_seconds * 1000:
        raise ImproperlyConfigured(
            f"MUSTER_WORKER_QUEUE_TTL_MS={muster.worker_queue_ttl_ms} is shorter than the "
            f"staleness window of {muster.staleness_seconds:g} s (interval x multiplier): "
            "messages would expire before their worker can be known to be lost."
        )
    if muster.gate_max_backoff_seconds < muster.gate_backoff_seconds:
        raise ImproperlyConfigured(
            f"MUSTER_GATE_MAX_BACKOFF_SECONDS={muster.gate_max_backoff_seconds:g} is less than "
            f"MUSTER_GATE_BACKOFF_SECONDS={muster.gate_backoff_seconds:g}: expected at least that."
        )
    if muster.defer_pause_seconds > LONGEST_PAUSE_SECONDS:
        raise ImproperlyConfigured(
            f"MUSTER_DEFER_PAUSE_SECONDS={muster.defer_pause_seconds:g}: expected at most "
            f"{LONGEST_PAUSE_SECONDS}."
        )
    for name, (least, most) in BOUNDS.items():
        if not least <= (number := getattr(muster, name)) <= most:
            raise ImproperlyConfigured(
                f"{PREFIX}{name.upper()}={number}: expected {least:g} to {most}."
            )
    for text in filter(None, muster.http_allowed_networks.split(",")):
        try:
            ipaddress.ip_network(text.strip())
        except ValueError as error:
            raise ImproperlyConfigured(
                f"MUSTER_HTTP_ALLOWED_NETWORKS={muster.http_allowed_networks!r}: {error}; "
                "expected networks such as 10.1.0.0/16, by commas."
            ) from None
    for name, choices in (
        ("tls", TLS),
        ("remote_control", REMOTE_CONTROL),
        ("metrics_access", METRICS_ACCESS),
        ("docs_access", DOCS_ACCESS),
        ("least_isolation", ISOLATION),
        ("queue_type", QUEUE_TYPES),
    ):
        if (value := getattr(muster, name)) not in choices:
            raise ImproperlyConfigured(
                f"{PREFIX}{name.upper()}={value!r}: expected {', '.join(choices)}."
            )
    if not muster.namespace.replace("-", "").replace("_", "").isalnum():
        raise ImproperlyConfigured(
            f"MUSTER_NAMESPACE={muster.namespace!r}: expected letters, digits, '-' and '_' only."
        )
