"""Task templates."""

from __future__ import annotations

from django.db import models

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.models.catalog import Pack


class TaskTemplateQuerySet(models.QuerySet["TaskTemplate"]):
    def visible_to(
        self, principal: Principal, permission: str = "templates.read"
    ) -> TaskTemplateQuerySet:
        """Is in a namespace for which the caller has a permission."""
        reach = authority.reach(principal, permission)
        return (
            self if reach.is_everywhere else self.filter(reach.condition(NAMESPACES, "namespace"))
        )


class TaskTemplate(models.Model):
    """A graph of steps, named `namespace/name/version`. Several versions can coexist.

    A version never changes once a task has run it.
    """

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="templates"
    )
    namespace = models.CharField(max_length=29)
    name = models.CharField(max_length=60)
    version = models.CharField(max_length=40, help_text="Semantic version, such as 1.0.0.")
    description = models.TextField(blank=True)
    definition = models.JSONField(help_text="As written in its YAML, checked.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the definition.")
    enabled = models.BooleanField(default=True, help_text="Whether tasks may be requested.")
    installed_at = models.DateTimeField()

    objects = TaskTemplateQuerySet.as_manager()

    class Meta:
        ordering = ["namespace", "name", "version"]
        constraints = [
            models.UniqueConstraint(
                "namespace", "name", "version", name="task_template_version_is_unique"
            ),
        ]

    def __str__(self) -> str:
        return self.ref

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}/{self.version}"

    @property
    def place(self) -> Place:
        """Its namespace, for scopes."""
        return Place(NAMESPACES, self.namespace)
