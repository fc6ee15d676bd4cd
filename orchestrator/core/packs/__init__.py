"""Packs: folders of actions and of apps' own files; read, checked, and installed as a unit.

definition = packs.load(path)              # pure: no database; raises InvalidPack
packs.install(definition, now=now)         # in one transaction, safe to repeat
packs.validate_parameters(action, values)  # what is wrong with them, if anything
"""

from orchestrator.core.models.catalog import WITHOUT_CODE
from orchestrator.core.packs.archives import Content, NotPackable
from orchestrator.core.packs.breaking import Broken, NewVersion, WouldBreak, problem_with
from orchestrator.core.packs.definitions import (
    ActionDefinition,
    InvalidPack,
    PackDefinition,
    PackFiles,
    kinds,
    load,
)
from orchestrator.core.packs.installation import (
    ContentProblem,
    ContentRefused,
    ContentReport,
    InstallReport,
    RefTaken,
    install,
)
from orchestrator.core.packs.parameters import (
    Problem,
    validate_parameters,
    validate_value,
    value_schema_problems,
)
from orchestrator.core.packs.presence import (
    UNEXPLAINED,
    missing_code,
    missing_entry_point,
    missing_folder,
)
from orchestrator.core.packs.runtimes import GROUP as RUNTIMES_GROUP
from orchestrator.core.packs.runtimes import (
    NO_NETWORK,
    TOKEN,
    defers_on_75,
    in_process,
    may_join,
)
from orchestrator.core.packs.source import Source, SourceProblem

__all__ = [
    "NO_NETWORK",
    "RUNTIMES_GROUP",
    "TOKEN",
    "UNEXPLAINED",
    "WITHOUT_CODE",
    "ActionDefinition",
    "Broken",
    "Content",
    "ContentProblem",
    "ContentRefused",
    "ContentReport",
    "InstallReport",
    "InvalidPack",
    "NewVersion",
    "NotPackable",
    "PackDefinition",
    "PackFiles",
    "Problem",
    "RefTaken",
    "Source",
    "SourceProblem",
    "WouldBreak",
    "defers_on_75",
    "in_process",
    "install",
    "kinds",
    "load",
    "may_join",
    "missing_code",
    "missing_entry_point",
    "missing_folder",
    "problem_with",
    "validate_parameters",
    "validate_value",
    "value_schema_problems",
]
