"""Import of StackStorm's packs: a folder of theirs becomes a folder of ours.

    report = st2.import_pack(Path("/opt/stackstorm/packs/git"), into=Path("packs"))

What Muster cannot say in the same meaning is left out and listed, with its file and line and the
reason. What is written passes `pack validate`.
"""

from orchestrator.automation.st2.importing import CannotImport, import_pack
from orchestrator.automation.st2.report import Finding, Report

__all__ = ["CannotImport", "Finding", "Report", "import_pack"]
