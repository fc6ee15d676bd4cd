"""Identities, what they are granted, and their API tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from orchestrator.access.audit.models import AuditEvent, AuditSeal
from orchestrator.core import authority
from orchestrator.core.authority import WHOLE, Place, Principal
from orchestrator.core.frame import ADMIN, PACKS
from orchestrator.core.models import Execution

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

__all__ = ["ApiToken", "AuditEvent", "AuditSeal", "ExecutionToken", "Grant", "Identity"]


class IdentityQuerySet(models.QuerySet["Identity"]):
    def services(self) -> IdentityQuerySet:
        """Service accounts."""
        return self.filter(user__isnull=True)

    def admins(self) -> IdentityQuerySet:
        """Those that are enabled, and admins of the whole installation."""
        is_enabled = Q(user__isnull=True, disabled_at=None) | Q(user__is_active=True)
        everywhere = Grant.objects.filter(identity=OuterRef("pk"), gives=ADMIN, scope={})
        return self.filter(is_enabled, Q(user__is_superuser=True) | Exists(everywhere))

    def in_order(self) -> IdentityQuerySet:
        """By name, with their users."""
        return self.select_related("user").order_by("user__username", "service_name")


class Identity(models.Model):
    """A person, who is a user of the admin, or a service account."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    user_id: int | None
    service_name = models.CharField(
        max_length=100, blank=True, help_text="Empty for a person, who has the name of its user."
    )
    description = models.CharField(max_length=200, blank=True)
    is_legacy = models.BooleanField(
        default=False,
        help_text="Owns the tokens that were made before tokens had owners.",
    )
    created_at = models.DateTimeField()
    disabled_at = models.DateTimeField(
        null=True, blank=True, help_text="Of a service; a person is disabled as a user."
    )

    objects = IdentityQuerySet.as_manager()

    if TYPE_CHECKING:
        grants: RelatedManager[Grant]
        tokens: RelatedManager[ApiToken]

    class Meta:
        verbose_name_plural = "identities"
        constraints = [
            models.UniqueConstraint(
                "service_name",
                name="identity_of_service_has_name_of_its_own",
                condition=Q(user__isnull=True),
            ),
            models.CheckConstraint(
                name="identity_is_of_person_or_service",
                condition=Q(user__isnull=True) ^ Q(service_name=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def kind(self) -> str:
        return "service" if self.user_id is None else "user"

    @property
    def name(self) -> str:
        return self.service_name if self.user is None else self.user.get_username()

    @property
    def is_superuser(self) -> bool:
        return self.user is not None and self.user.is_superuser

    @property
    def is_disabled(self) -> bool:
        """True if nothing in its name is accepted."""
        return self.disabled_at is not None if self.user is None else not self.user.is_active

    @property
    def key_owner(self) -> int:
        """The number of its idempotency keys. Earlier keys have no owner: they are 0's."""
        return 0 if self.is_legacy else self.pk


class Grant(models.Model):
    """A role or a permission that an identity has, in a part of the installation or all of it."""

    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="grants")
    identity_id: int
    gives = models.CharField(max_length=60, help_text="A role, or a single permission.")
    scope = models.JSONField(
        default=dict, blank=True, help_text="Lists of packs and namespaces, labels; empty for all."
    )
    granted_by = models.CharField(max_length=150)
    granted_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.gives} {self.scope or 'everywhere'}"


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is kept: 256 random bits need no salt.

    A token that is rotated stays until the overlap is over; the new text is a row of its own, under
    the same name.
    """

    identity = models.ForeignKey(Identity, on_delete=models.PROTECT, related_name="tokens")
    identity_id: int
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, help_text="First characters, to tell tokens apart.")
    digest = models.CharField(max_length=64, unique=True)
    grants = models.JSONField(
        null=True, blank=True, help_text="Narrows what its owner may do; empty for all of that."
    )
    networks = models.JSONField(
        default=list, blank=True, help_text="Networks of its callers; empty for any."
    )
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    superseded_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was rotated: another text has its name."
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(
                "name",
                name="token_in_use_has_name_of_its_own",
                condition=Q(revoked_at__isnull=True, superseded_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class ExecutionToken(models.Model):
    """The token of one attempt. Only its SHA-256 is kept, see `execution_tokens`."""

    digest = models.CharField(max_length=64, primary_key=True)
    # without a constraint of the database, as executions are pruned by themselves
    execution = models.ForeignKey(
        Execution,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    execution_id: UUID
    attempt = models.PositiveIntegerField()
    worker_incarnation = models.PositiveIntegerField(help_text="The life of its worker.")

    def __str__(self) -> str:
        return f"token of attempt {self.attempt} of {self.execution_id}"


class LoginRecord(models.Model):
    """The failed logins of a name, or from an address; or an address that a name is known to log in
    from."""

    class Kind(models.TextChoices):
        ADDRESS = "address"
        KNOWN = "known"
        NAME = "name"

    kind = models.CharField(max_length=7, choices=Kind)
    key = models.CharField(max_length=210)
    failures = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(db_index=True)
    free_at = models.DateTimeField()
    """The next attempt is looked at from then on."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], name="one_login_record_of_each")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.failures}"


class KeyQuerySet(models.QuerySet["Key"]):
    def usable(self) -> KeyQuerySet:
        """Not revoked."""
        return self.filter(revoked_at__isnull=True)

    def visible_to(self, principal: Principal, permission: str = "keys.read") -> KeyQuerySet:
        """Of packs for which the caller has a permission, and one's own; those of the installation
        and of others only for who has it everywhere."""
        reach = authority.reach(principal, permission)
        if reach.is_everywhere:
            return self
        own = Q(scope="user", owner=getattr(principal, "identity", "") or None)
        if not reach:
            return self.filter(own)
        return self.filter(own | (Q(scope="pack") & reach.condition(PACKS, "owner")))


class Key(models.Model):
    """A secret that executions refer to. The value is sealed, see `keys.sealing`."""

    class Scope(models.TextChoices):
        INSTALLATION = "installation"
        PACK = "pack"
        USER = "user"

    scope = models.CharField(max_length=12, choices=Scope.choices)
    owner = models.CharField(
        max_length=150,
        blank=True,
        help_text="The pack, or the identity; empty for the installation.",
    )
    name = models.CharField(max_length=60)
    packs = models.JSONField(
        default=list, blank=True, help_text="Packs whose actions may get a key of the installation."
    )
    description = models.CharField(max_length=200, blank=True)
    version = models.PositiveIntegerField(default=1, help_text="Grows with each rotation.")
    ring_id = models.CharField(
        max_length=16, blank=True, help_text="The key of the ring that seals the data key."
    )
    data_key = models.BinaryField(default=bytes, blank=True)
    content = models.BinaryField(default=bytes, blank=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField(help_text="When its value was last set.")
    changed_by = models.CharField(max_length=150)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    objects: ClassVar[KeyQuerySet] = KeyQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["scope", "owner", "name", "pk"]
        constraints = [
            models.UniqueConstraint(
                "scope",
                "owner",
                "name",
                name="key_is_usable_once",
                condition=Q(revoked_at__isnull=True),
            ),
            models.CheckConstraint(
                name="key_scope_is_known",
                condition=Q(scope__in=["installation", "pack", "user"]),
            ),
            models.CheckConstraint(
                name="key_of_installation_has_no_owner",
                condition=Q(scope="installation", owner="")
                | Q(~Q(scope="installation"), ~Q(owner="")),
            ),
            models.CheckConstraint(
                name="key_revoked_has_no_content",
                condition=Q(revoked_at__isnull=True) | Q(ring_id="", data_key=b"", content=b""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner if self.scope == self.Scope.PACK else self.scope}/{self.name}"

    @property
    def place(self) -> Place:
        """Its pack, for scopes; any other belongs to the whole installation."""
        return Place(PACKS, self.owner) if self.scope == self.Scope.PACK else WHOLE
