"""Task templates: read from YAML or JSON, checked, and installed, alone or with their pack."""

from orchestrator.workflows.task_templates.checking import (
    InvalidTemplate,
    check_template,
    load_template,
    template_from_values,
)
from orchestrator.workflows.task_templates.definitions import TemplateDefinition
from orchestrator.workflows.task_templates.installation import (
    TemplateInUse,
    TemplateTaken,
    UnknownAction,
    UnknownNamespace,
    install_templates,
)

__all__ = [
    "InvalidTemplate",
    "TemplateDefinition",
    "TemplateInUse",
    "TemplateTaken",
    "UnknownAction",
    "UnknownNamespace",
    "check_template",
    "install_templates",
    "load_template",
    "template_from_values",
]
