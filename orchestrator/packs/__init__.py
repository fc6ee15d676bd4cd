"""Packs: folders of actions, read, checked, and installed as one.

definition = packs.load(path)              # pure: no database; raises InvalidPack
packs.install(definition, now=now)         # in one transaction, safe to repeat
packs.validate_parameters(action, values)  # what is wrong with them, if anything
"""

from orchestrator.packs.definitions import ActionDefinition, InvalidPack, PackDefinition, load
from orchestrator.packs.installation import InstallReport, RefTaken, install
from orchestrator.packs.parameters import Problem, validate_parameters
from orchestrator.packs.source import SourceProblem

__all__ = [
    "ActionDefinition",
    "InstallReport",
    "InvalidPack",
    "PackDefinition",
    "Problem",
    "RefTaken",
    "SourceProblem",
    "install",
    "load",
    "validate_parameters",
]
