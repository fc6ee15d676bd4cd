"""StackStorm's templates in ours: values of rules, and commands for a shell.

In StackStorm a command is put together as text, and the shell reads whatever a value says. Here
each expression becomes an argument of its own, which no shell reads: `echo {{ name }}` becomes
`sh -c 'echo "${1}"' sh NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.automation.parameters import NAMES
from orchestrator.automation.st2.report import NotConvertible
from orchestrator.core import expressions

EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
STATEMENT = re.compile(r"\{[%#]")
SINGLE_NAME = re.compile(r"\s*(?:action_parameters\.)?([A-Za-z_]\w*)\s*")
PLACEHOLDER_LIKE = re.compile(r"\{([A-Za-z_]\w*)\}")
DATASTORE = re.compile(r"\b(st2kv|decrypt_kv|system)\b")

NO_DATASTORE = (
    "it reads StackStorm's datastore; Muster has keys for secrets: create one with "
    "`manage.py keys`, and write {{ keys.PACK.NAME }}"
)


Renaming = Callable[[str], str]
"""Takes an expression or a path over their payload, and gives the same over ours. Raises
NotConvertible."""


def rule_value(value: Any, here: Renaming) -> Any:
    """The value of a rule's parameter, with its expressions over our payload. Raises
    NotConvertible."""
    if isinstance(value, str):
        return rule_text(value, here)
    if isinstance(value, Mapping):
        return {name: rule_value(item, here) for name, item in value.items()}
    if isinstance(value, list):
        return [rule_value(item, here) for item in value]
    return value


def rule_text(text: str, here: Renaming) -> str:
    """A text of a rule, with its expressions over our payload. Raises NotConvertible."""
    if not expressions.is_expression(text):
        return text
    if DATASTORE.search("".join(EXPRESSION.findall(text))):
        raise NotConvertible(NO_DATASTORE)
    changed = EXPRESSION.sub(lambda match: "{{" + here(match[1]) + "}}", text)
    try:
        expressions.read(changed, names=NAMES)
    except expressions.InvalidExpression as error:
        raise NotConvertible(f"the expression {text.strip():.120}: {error}") from None
    return changed


def with_names(expression: str, renamed: Mapping[str, str]) -> str:
    """An expression with the names of our payload. Raises NotConvertible for one that it lacks."""
    for theirs, ours in renamed.items():
        name = re.escape(theirs)
        pattern = re.compile(rf"\btrigger(?:\.{name}\b|\[\s*(['\"]){name}\1\s*\])")
        if pattern.search(expression) and not ours:
            raise NotConvertible(f"events of Muster have no {theirs!r}")
        expression = pattern.sub(f"trigger.{ours}", expression)
    return expression


# --- commands ------------------------------------------------------------------------------------


def command(text: str, argument: Callable[[str], str]) -> list[str]:
    """A command line for `sh -c` with the values of its expressions as arguments. `argument` makes
    one of an expression, and may raise NotConvertible."""
    if STATEMENT.search(text):
        raise NotConvertible("it has statements of Jinja, which expressions of Muster do not have")
    arguments: list[str] = []
    script, at = "", 0
    for match in EXPRESSION.finditer(text):
        script += text[at : match.start()]
        at = match.end()
        arguments.append(argument(match[1]))
        script += _quoted(len(arguments), quote_at(script))
    script += text[at:]
    return ["sh", "-c", script, *(["sh", *arguments] if arguments else [])]


def quote_at(script: str) -> str:
    """The quotes that are open at the end of this script: ', \" or none. Raises NotConvertible
    where arguments cannot be put in."""
    if "`" in script or "<<" in script:
        raise NotConvertible("an expression after backquotes or a here-document")
    open_ones: list[str] = []
    is_escaped = False
    for at, character in enumerate(script):
        inner = open_ones[-1] if open_ones else ""
        if is_escaped:
            is_escaped = False
        elif character == "\\" and inner != "'":
            is_escaped = True
        elif character == CLOSES.get(inner):
            open_ones.pop()
        elif inner != "'" and _opens(script, at, inner):
            open_ones.append(character)
    return open_ones[-1].replace("(", "") if open_ones else ""


CLOSES = {"'": "'", '"': '"', "(": ")"}


def _opens(script: str, at: int, inner: str) -> bool:
    """Return True for a quote or parenthesis that opens. In double quotes, only `$(` does."""
    if inner == '"':
        return script[at] == "(" and script[at - 1 : at] == "$"
    return script[at] in "'\"("


def _quoted(number: int, quote: str) -> str:
    """The argument of this number, inside of these quotes."""
    return {"": f'"${{{number}}}"', '"': f"${{{number}}}", "'": f"'\"${{{number}}}\"'"}[quote]


def filled(text: str, argument: Callable[[str], str]) -> str:
    """A text with a placeholder of ours for each expression. `argument` makes one of an expression,
    and may raise NotConvertible."""
    if STATEMENT.search(text):
        raise NotConvertible("it has statements of Jinja, which expressions of Muster do not have")
    parts, at = [], 0
    for match in EXPRESSION.finditer(text):
        parts += [escaped(text[at : match.start()]), argument(match[1])]
        at = match.end()
    return "".join(parts) + escaped(text[at:])


def escaped(script: str) -> str:
    """A text of an entry point without placeholders: `${HOME}` is no parameter."""
    return PLACEHOLDER_LIKE.sub(r"{{\1}}", script)


def parameter_name(expression: str) -> str:
    """The name of the action's parameter that an expression is. Raises NotConvertible."""
    if DATASTORE.search(expression):
        raise NotConvertible(NO_DATASTORE)
    match = SINGLE_NAME.fullmatch(expression)
    if match is None:
        raise NotConvertible(f"{{{{{expression}}}}} is more than the name of a parameter")
    return match[1]
