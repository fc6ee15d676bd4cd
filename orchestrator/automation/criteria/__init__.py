"""Criteria of rules: compiled once, and evaluated over events without a database or a clock.

criteria = compile_criteria(document)       # raises InvalidCriteria with every problem
criteria.matches(facts)                     # True or False
shown(criteria.explain(facts))              # leaf by leaf, as JSON
RuleBook(rules).matching(facts)             # the rules of a trigger that match, or break
"""

from orchestrator.automation.criteria.compiling import (
    Criteria,
    InvalidCriteria,
    compile_criteria,
)
from orchestrator.automation.criteria.explanations import Explanation, Outcome, shown
from orchestrator.automation.criteria.facts import Facts
from orchestrator.automation.criteria.rulebook import BookRule, RuleBook

__all__ = [
    "BookRule",
    "Criteria",
    "Explanation",
    "Facts",
    "InvalidCriteria",
    "Outcome",
    "RuleBook",
    "compile_criteria",
    "shown",
]
