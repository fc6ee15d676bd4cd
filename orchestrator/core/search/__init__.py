"""The search language of executions, one for all faces: `status:failed ran:>5s`.

asked = search.Asked(principal, now)
wanted = search.read("status:failed message:\\"no route\\"", asked)     # raises NotUnderstood
page = search.find(wanted, Execution.objects.visible_to(principal), limit=50)

docs/search.md has the keys, docs/adr/0085-searches-read-an-index-or-a-window.md the bounds.
"""

from orchestrator.core.search.completion import Suggestion, complete
from orchestrator.core.search.conditions import Asked
from orchestrator.core.search.finding import Found, LookedAt, SearchTookTooLong, Stop, find
from orchestrator.core.search.grammar import LONGEST, Mistake, NotUnderstood, term
from orchestrator.core.search.terms import Wanted, read

__all__ = [
    "LONGEST",
    "Asked",
    "Found",
    "LookedAt",
    "Mistake",
    "NotUnderstood",
    "SearchTookTooLong",
    "Stop",
    "Suggestion",
    "Wanted",
    "complete",
    "find",
    "read",
    "term",
]
