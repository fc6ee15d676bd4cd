"""Gates: the door of a queue to AMQP."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from orchestrator.queues.models.queues import WorkQueue

QUEUE_NAME_MAX = 255
"""AMQP's short strings have at most 255 bytes."""


class Gate(models.Model):
    """The place where task messages come in, and where answers go out. Its queues carry the user's
    names."""

    class QueueType(models.TextChoices):
        CLASSIC = "classic"
        QUORUM = "quorum"

    class Custody(models.TextChoices):
        RESULT = "result"
        """A delivery stays unacknowledged until its answer is confirmed."""
        ROW = "row"
        """It is acknowledged once its row is committed."""

    class RetryBy(models.TextChoices):
        MUSTER = "muster"
        QUEUE = "queue"
        """A lost attempt is published to the retry queue, for other consumers too."""

    class Divert(models.TextChoices):
        FORWARD = "forward"
        RUN = "run"
        REFUSE = "refuse"

    class Codec(models.TextChoices):
        JSON = "json"
        TEXT = "text"
        RAW = "raw"

    queue = models.OneToOneField(
        WorkQueue, on_delete=models.PROTECT, primary_key=True, related_name="gate"
    )
    queue_id: int
    broker = models.CharField(max_length=60, default="default", help_text="Alias of its broker.")
    input_queue = models.CharField(max_length=QUEUE_NAME_MAX)
    retry_queue = models.CharField(
        max_length=QUEUE_NAME_MAX, blank=True, help_text="Empty for the input queue."
    )
    rejected_queue = models.CharField(
        max_length=QUEUE_NAME_MAX, blank=True, help_text="Empty for no copies."
    )
    output_queue = models.CharField(
        max_length=QUEUE_NAME_MAX, blank=True, help_text="Empty for no answers."
    )
    paused_queue = models.CharField(
        max_length=QUEUE_NAME_MAX, blank=True, help_text="Empty: paused work stays here."
    )
    queue_type = models.CharField(max_length=7, choices=QueueType.choices, default=QueueType.QUORUM)
    max_priority = models.PositiveSmallIntegerField(default=0)

    custody = models.CharField(max_length=6, choices=Custody.choices, default=Custody.RESULT)
    count_redelivered = models.BooleanField(
        default=True, help_text="A redelivery without a ticket counts as a lost start."
    )
    retry_by = models.CharField(max_length=6, choices=RetryBy.choices, default=RetryBy.MUSTER)
    consumes_retry = models.BooleanField(
        default=True, help_text="Takes messages from the retry queue, too."
    )
    once = models.BooleanField(
        default=False, help_text="Confirms an action that must not be started again once lost."
    )

    classifiers = models.JSONField(
        default=dict, blank=True, help_text="By task classifier: action, versions, answer."
    )
    codec = models.CharField(max_length=4, choices=Codec.choices, default=Codec.JSON)
    divert = models.CharField(max_length=7, choices=Divert.choices, default=Divert.REFUSE)
    forward_to = models.JSONField(
        default=list, blank=True, help_text="Patterns of queue names that it may forward to."
    )
    allow_loop = models.BooleanField(
        default=False, help_text="Answers may go to the queue that it reads."
    )
    status_check = models.BooleanField(
        default=True, help_text="Asks the status URL of a message's job."
    )
    answer_inactive = models.BooleanField(
        default=False, help_text="Answers messages of jobs that are over."
    )
    reply_to = models.BooleanField(
        default=False, help_text="Answers to the queue that a message names, if it does."
    )
    trusted_users = models.JSONField(
        default=list, blank=True, help_text="AMQP users whose messages are taken; empty for all."
    )
    service_name = models.CharField(max_length=100, blank=True)
    service_version = models.CharField(max_length=40, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("broker", "input_queue", name="gate_input_queue_has_one_gate"),
            models.CheckConstraint(
                name="gate_quorum_queues_have_no_priorities",
                condition=Q(queue_type="classic") | Q(max_priority=0),
            ),
            models.CheckConstraint(
                name="gate_max_priority_fits", condition=Q(max_priority__lte=255)
            ),
            models.CheckConstraint(name="gate_has_input_queue", condition=~Q(input_queue="")),
        ]

    def __str__(self) -> str:
        return f"{self.input_queue} -> {self.output_queue or 'nowhere'}"

    @property
    def retries_go_to(self) -> str:
        """The queue for messages that are tried again."""
        return self.retry_queue or self.input_queue
