"""Celery's settings, each with the reason why it differs from the default."""

from __future__ import annotations

from django.conf import settings

broker_url = settings.BROKER_URL
broker_use_ssl = settings.BROKER_TLS if broker_url.startswith("amqps:") else False
# the row is the truth: no code of ours reads a result backend
task_ignore_result = True
result_backend = None

task_default_queue = f"{settings.MUSTER.namespace}.maintenance.queue"
# a producer would create a worker's queue without its TTL and dead letter exchange
task_create_missing_queues = False
# the broker's own default exchange: it reaches a queue by its name and needs no declaration
task_default_exchange = ""
task_default_exchange_type = "direct"
task_default_routing_key = task_default_queue
task_serializer = "json"
accept_content = ["json"]

# our consumer waits for the broker in its own way, without a limit
worker_consumer = "tasks.patient_consumer:Consumer"
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
worker_cancel_long_running_tasks_on_connection_loss = True
broker_heartbeat = 10
# an exchange that is deleted between its declaration and a binding must not end a process
broker_channel_error_retry = True
# `confirm_publish` stays off: in the global options it keeps a worker from noticing a stalled
# broker; the publisher has its own connection, with confirms and time limits. A frozen broker must
# not block the event loop in the middle of a request
broker_transport_options: dict[str, object] = {
    "read_timeout": settings.MUSTER.publish_timeout_seconds,
    "write_timeout": settings.MUSTER.publish_timeout_seconds,
}
# whoever reaches the broker could shut processes down: see tasks/remote_control.py
worker_enable_remote_control = settings.MUSTER.remote_control != "off"
# a process that was killed leaves its queue for the next one of its name
control_queue_exclusive = False
worker_send_task_events = settings.MUSTER.celery_events
# control and events also stay within an installation
if settings.MUSTER.namespace != "muster":
    control_exchange = f"{settings.MUSTER.namespace}.celery"
    event_exchange = f"{settings.MUSTER.namespace}.celeryev"
    event_queue_prefix = f"{settings.MUSTER.namespace}.celeryev"

task_send_sent_event = False
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_disable_rate_limits = True
# Celery closes Django's connection around each task unless told to keep it. It keeps a broken one,
# too: our tasks look after theirs
CELERY_DB_REUSE_MAX = 1_000

beat_scheduler = "tasks.beat:Scheduler"
beat_max_loop_interval = 1
timezone = "UTC"
enable_utc = True
