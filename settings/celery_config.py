"""Celery's settings, each with the reason why it differs from the default."""

from __future__ import annotations

from django.conf import settings

broker_url = settings.BROKER_URL
# the row is the truth: nothing of ours reads a result backend
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

# it waits for the broker in a way of its own, and for as long as it takes
worker_consumer = "tasks.patient_consumer:Consumer"
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
worker_cancel_long_running_tasks_on_connection_loss = True
broker_heartbeat = 10
# an exchange that somebody deletes between its declaration and a binding to it ends no process
broker_channel_error_retry = True
# `confirm_publish` stays off here: in the global options it blinds a worker to a stalled
# broker; the publisher keeps a connection of its own, with confirms and time limits
# a broker that is frozen must not keep the event loop in the middle of a question
broker_transport_options: dict[str, object] = {
    "read_timeout": settings.MUSTER.publish_timeout_seconds,
    "write_timeout": settings.MUSTER.publish_timeout_seconds,
}
# orders and events of `celery control` and `events` stay inside of an installation, too
if settings.MUSTER.namespace != "muster":
    control_exchange = f"{settings.MUSTER.namespace}.celery"
    event_exchange = f"{settings.MUSTER.namespace}.celeryev"
    event_queue_prefix = f"{settings.MUSTER.namespace}.celeryev"

task_send_sent_event = False
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_disable_rate_limits = True
# Celery closes Django's connection around each task unless told to keep it
CELERY_DB_REUSE_MAX = 1_000

beat_scheduler = "tasks.beat:Scheduler"
beat_max_loop_interval = 1
timezone = "UTC"
enable_utc = True
