"""Packs: folders of actions and task templates, read, checked, and installed as one.

definition = packs.load(path)              # pure: no database; raises InvalidPack
packs.install(definition, now=now)         # in one transaction, safe to repeat
packs.validate_parameters(action, values)  # what is wrong with them, if anything
"""

from orchestrator.models.catalog import WITHOUT_CODE
from orchestrator.packs.definitions import ActionDefinition, InvalidPack, PackDefinition, load
from orchestrator.packs.installation import InstallReport, RefTaken, install
from orchestrator.packs.parameters import Problem, validate_parameters, validate_value
from orchestrator.packs.presence import (
    UNEXPLAINED,
    missing_code,
    missing_entry_point,
    missing_folder,
)
from orchestrator.packs.runtimes import GROUP as RUNTIMES_GROUP
from orchestrator.packs.runtimes import in_process
from orchestrator.packs.source import SourceProblem
from orchestrator.packs.template_definitions import TemplateDefinition
from orchestrator.packs.template_installation import (
    TemplateInUse,
    TemplateReport,
    TemplateTaken,
    UnknownAction,
    install_templates,
)
from orchestrator.packs.templates import InvalidTemplate, load_template, template_from_values

__all__ = [
    "RUNTIMES_GROUP",
    "UNEXPLAINED",
    "WITHOUT_CODE",
    "ActionDefinition",
    "InstallReport",
    "InvalidPack",
    "InvalidTemplate",
    "PackDefinition",
    "Problem",
    "RefTaken",
    "SourceProblem",
    "TemplateDefinition",
    "TemplateInUse",
    "TemplateReport",
    "TemplateTaken",
    "UnknownAction",
    "in_process",
    "install",
    "install_templates",
    "load",
    "load_template",
    "missing_code",
    "missing_entry_point",
    "missing_folder",
    "template_from_values",
    "validate_parameters",
    "validate_value",
]
