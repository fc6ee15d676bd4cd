"""Celery with django-celery-results on PostgreSQL: what became of each task is in a table.

The usual way to keep track of Celery tasks from Django. This module is Django's settings, too.
"""

from __future__ import annotations

import os

import environ
from celery import Celery, signals
from kombu import Queue

os.environ["DJANGO_SETTINGS_MODULE"] = __name__

SECRET_KEY = "nothing here is secret"  # noqa: S105
INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_results"]
DATABASES = {"default": dict(environ.Env.db_url_config(os.environ["DATABASE_URL"]))}
# with CELERY_DB_REUSE_MAX below: one connection a pool child, instead of one a task
DATABASES["default"]["CONN_MAX_AGE"] = None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

app = Celery("rival", broker=os.environ["BROKER_URL"])
app.conf.update(
    # everything as for raw Celery (the reasons are there), and results in the database
    task_default_queue="rival",
    task_queues=[Queue("rival", durable=True)],
    task_default_delivery_mode=2,
    task_acks_late=True,
    worker_prefetch_multiplier=64,
    worker_concurrency=2,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_redirect_stdouts=False,
    broker_transport_options={"confirm_publish": False},
    result_backend="django-db",
    # one row written at the end of each task and none at its start: the least it can write
    task_track_started=False,
    result_extended=False,
    # Celery closes Django's connection around each task unless told to keep it
    CELERY_DB_REUSE_MAX=1_000_000,
)


@app.task
def noop() -> None:
    pass


@signals.worker_ready.connect
def _say_ready(**_: object) -> None:
    print("ready.", flush=True)


def prepare() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def begin() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_celery_results_taskresult")


def submit(*, count: int, bulk: bool) -> None:
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


def is_finished(*, count: int) -> bool:
    from django_celery_results.models import TaskResult

    return bool(TaskResult.objects.filter(status="SUCCESS").count() >= count)
