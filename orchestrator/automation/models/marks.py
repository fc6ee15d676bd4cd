"""Marks that processes compare: the state of the rules, and how far histories were read."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import models

from orchestrator.automation.models.triggers import Trigger

THE_ONLY = 1


class RevisionQuerySet(models.QuerySet["Revision"]):
    def stamp(self) -> UUID | None:
        """The stamp now; None if no rule was ever installed."""
        return self.filter(pk=THE_ONLY).values_list("stamp", flat=True).first()

    def lock(self) -> None:
        """Have whoever else changes rules wait for the end of this transaction. Comes before any
        row of a rule or a timer is locked.

        Whether an enabled rule waits for a trigger is read, and acted upon later; and rows of rules
        and timers are locked in no common order.
        """
        self.select_for_update().get_or_create(pk=THE_ONLY, defaults={"stamp": uuid4()})

    def advance(self) -> None:
        """Change the stamp, in the transaction of a change that caches must see; it is locked."""
        self.filter(pk=THE_ONLY).update(stamp=uuid4())


class Revision(models.Model):
    """Its stamp changes with every rule: whoever keeps rules in memory asks for it first. It is
    random, so that one of a database that was restored is never taken for another."""

    stamp = models.UUIDField()

    objects = RevisionQuerySet.as_manager()

    def __str__(self) -> str:
        return str(self.stamp)


class Watermark(models.Model):
    """The position up to which a trigger has read the history that its type follows, such as that
    of executions. There is one while an enabled rule waits for it."""

    trigger = models.OneToOneField(
        Trigger, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    trigger_id: int
    read_id = models.BigIntegerField(help_text="Nothing up to this row is read again.")
    seen_id = models.BigIntegerField(
        help_text="The newest row at one look; those before it may have been written later."
    )
    seen_xid = models.BigIntegerField(
        default=0, help_text="When all transactions up to this one are over, none is any more."
    )
    beyond_ends = models.BooleanField(
        default=False, help_text="Wants other statuses than terminal ones."
    )

    def __str__(self) -> str:
        return f"{self.trigger_id} to {self.read_id}"
