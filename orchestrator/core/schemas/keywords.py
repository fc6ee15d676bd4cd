"""The keywords of JSON Schema 2020-12, by its sections: core, applicator, validation.

None quotes the value: what is shown of it is decided where the message is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from itertools import islice
from operator import ge, gt, le, lt
from typing import Any

from orchestrator.core.schemas import patterns, published, unevaluated
from orchestrator.core.schemas.checking import Check, Finding, Keyword, Path, Said, Unread

Schema = dict[str, Any]
Findings = Iterator[Finding]

OBJECT, ARRAY, TEXT, NUMBER, ANY = dict, (list, tuple), str, (int, float), object

NAMES_SHOWN = 5
LONGEST_NAME = 40
LONGEST_QUOTE = 80
LARGEST_PROGRAM = 30_000
"""Steps for a pattern that is too large: about its states when the memory was used up."""


# --- core ----------------------------------------------------------------------------------------


def ref(check: Check, reference: str, value: Any, schema: Schema, path: Path) -> Findings:
    yield from check.findings(value, check.document.resolve(reference), path)


# --- applicators in place ------------------------------------------------------------------------


def all_of(check: Check, schemas: list[Any], value: Any, schema: Schema, path: Path) -> Findings:
    for each in schemas:
        yield from check.findings(value, each, path)


def any_of(check: Check, schemas: list[Any], value: Any, schema: Schema, path: Path) -> Findings:
    first: list[Finding] = []
    for each in schemas:
        finding = next(check.findings(value, each, path), None)
        if finding is None:
            return
        first.append(finding)
    yield _alternatives(first, value, path)


def one_of(check: Check, schemas: list[Any], value: Any, schema: Schema, path: Path) -> Findings:
    first = [next(check.findings(value, each, path), None) for each in schemas]
    fitting = first.count(None)
    if not fitting:
        yield _alternatives([finding for finding in first if finding], value, path)
    elif fitting > 1 and not isinstance(value, Unread):
        expected = f"exactly one of {len(schemas)} alternatives to fit"
        yield Finding(path, expected, Said(f"{fitting} that do"))


def _alternatives(first: list[Finding], value: Any, path: Path) -> Finding:
    """Name what each alternative expects where all of them look at this very value."""
    expected = list(dict.fromkeys(finding.expected for finding in first))
    if len(expected) <= NAMES_SHOWN and all(finding.path == path for finding in first):
        return Finding(path, " or ".join(expected), value)
    return Finding(path, f"one of {len(first)} alternatives to fit", Said("none that does"))


def not_(check: Check, unwanted: Any, value: Any, schema: Schema, path: Path) -> Findings:
    if not isinstance(value, Unread) and check.fits(value, unwanted):
        yield Finding(path, "what the schema's `not` does not describe", value)


def if_(check: Check, condition: Any, value: Any, schema: Schema, path: Path) -> Findings:
    if isinstance(value, Unread):
        return
    branch = "then" if check.fits(value, condition) else "else"
    yield from check.findings(value, schema.get(branch, True), path)


def dependent_schemas(
    check: Check, schemas: Schema, value: Any, schema: Schema, path: Path
) -> Findings:
    check.spend(len(schemas))
    for name, each in schemas.items():
        if name in value:
            yield from check.findings(value, each, path)


# --- applicators of properties and items ---------------------------------------------------------


def properties(check: Check, schemas: Schema, value: Any, schema: Schema, path: Path) -> Findings:
    check.spend(len(schemas) // 10)
    for name, each in schemas.items():
        if name in value:
            yield from check.findings(value[name], each, (path, name))


def pattern_properties(
    check: Check, schemas: Schema, value: Any, schema: Schema, path: Path
) -> Findings:
    for pattern, each in schemas.items():
        for name, item in value.items():
            if check.matches(pattern, name):
                yield from check.findings(item, each, (path, name))


def additional_properties(
    check: Check, others: Any, value: Any, schema: Schema, path: Path
) -> Findings:
    check.spend(len(value) // 10)
    named, by_pattern = schema.get("properties", {}), schema.get("patternProperties", ())
    extra = [
        name
        for name in value
        if name not in named and not any(check.matches(pattern, name) for pattern in by_pattern)
    ]
    if others is not False:
        for name in extra:
            yield from check.findings(value[name], others, (path, name))
    elif extra:
        known = f"no properties besides {_names(named)}" if named else "no properties"
        more = " and what the patterns name" if by_pattern else ""
        yield Finding(path, known + more, Said(_names(extra)))


def property_names(check: Check, names: Any, value: Any, schema: Schema, path: Path) -> Findings:
    for name in value:
        for finding in check.findings(name, names, path):
            yield Finding(path, f"{finding.expected} as a property's name", finding.found)


def prefix_items(
    check: Check, schemas: list[Any], value: Any, schema: Schema, path: Path
) -> Findings:
    for index, (item, each) in enumerate(zip(value, schemas, strict=False)):
        yield from check.findings(item, each, (path, index))


def items(check: Check, each: Any, value: Any, schema: Schema, path: Path) -> Findings:
    start = len(schema.get("prefixItems", ()))
    if each is not False:
        for index in range(start, len(value)):
            yield from check.findings(value[index], each, (path, index))
    elif len(value) > start:
        yield Finding(path, f"at most {_count(start, 'item')}", value)


def contains(check: Check, wanted: Any, value: Any, schema: Schema, path: Path) -> Findings:
    low, high = schema.get("minContains", 1), schema.get("maxContains", len(value))
    fitting = sum(check.fits(item, wanted) for item in value)
    if fitting < low:
        yield Finding(path, f"at least {_count(low, 'item')} as in `contains`", Said(f"{fitting}"))
    if fitting > high:
        yield Finding(path, f"at most {_count(high, 'item')} as in `contains`", Said(f"{fitting}"))


def unevaluated_properties(
    check: Check, others: Any, value: Any, schema: Schema, path: Path
) -> Findings:
    known = unevaluated.properties(check, schema, value)
    unknown = [name for name in value if name not in known]
    if others is not False:
        for name in unknown:
            yield from check.findings(value[name], others, (path, name))
    elif unknown:
        yield Finding(path, "no properties besides the described ones", Said(_names(unknown)))


def unevaluated_items(
    check: Check, others: Any, value: Any, schema: Schema, path: Path
) -> Findings:
    known = unevaluated.items(check, schema, value)
    for index, item in enumerate(value):
        if index not in known:
            yield from check.findings(item, others, (path, index))


# --- validation ----------------------------------------------------------------------------------


def type_(check: Check, wanted: Any, value: Any, schema: Schema, path: Path) -> Findings:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(TYPES[name](value) for name in names):
        yield Finding(path, " or ".join(names), value)


def enum(check: Check, values: list[Any], value: Any, schema: Schema, path: Path) -> Findings:
    if isinstance(value, Unread):
        return
    if check.key(value) not in check.document.keys(values):
        more = ", …" if len(values) > 2 * NAMES_SHOWN else ""
        known = ", ".join(_quoted(each) for each in values[: 2 * NAMES_SHOWN])
        yield Finding(path, f"one of {known}{more}", value)


def const(check: Check, only: Any, value: Any, schema: Schema, path: Path) -> Findings:
    if not isinstance(value, Unread) and check.key(value) != check.key(only):
        yield Finding(path, _quoted(only), value)


def pattern(check: Check, pattern: str, value: str, schema: Schema, path: Path) -> Findings:
    if not isinstance(value, Unread) and not check.matches(pattern, value):
        yield Finding(path, f"text that matches {_quoted(pattern)}", value)


def format_(check: Check, name: str, value: Any, schema: Schema, path: Path) -> Findings:
    if isinstance(value, Unread):
        return
    if name == "regex":
        yield from _regex(check, value, path)
        return
    check.spend(len(value) // 10)
    if not published.conforms(value, name):
        yield Finding(path, f"text of the format {_quoted(name)}", value)


def _regex(check: Check, value: str, path: Path) -> Findings:
    check.spend(len(value) // 10)
    try:
        check.spend(patterns.size(value))
    except patterns.InvalidPattern as error:
        check.spend(LARGEST_PROGRAM if "too large" in str(error) else 1)
        long = len(value) > LONGEST_NAME
        shown = f"a text of {len(value):,} characters" if long else repr(value)
        yield Finding(path, patterns.EXPECTED, Said(f"{shown}: {error}"))


def required(check: Check, names: list[str], value: Any, schema: Schema, path: Path) -> Findings:
    check.spend(len(names) // 10)
    for name in names:
        if name not in value:
            yield Finding(path, f"the property {_quoted(name)}", Said("none"))


def dependent_required(
    check: Check, needs: Schema, value: Any, schema: Schema, path: Path
) -> Findings:
    for name, names in needs.items():
        check.spend(1 + len(names) // 10)
        for other in names if name in value else ():
            if other not in value:
                yield Finding(
                    path, f"the property {_quoted(other)} beside {_quoted(name)}", Said("none")
                )


def unique_items(check: Check, wanted: bool, value: Any, schema: Schema, path: Path) -> Findings:
    first: dict[Any, int] = {}
    for index, item in enumerate(value if wanted else ()):
        check.spend(1)
        key = check.key(item)
        if key in first:
            yield Finding(path, "no item twice", Said(f"item {index} as item {first[key]}"))
            return
        first[key] = index


def _number(fits: Callable[[Any, Any], bool], words: str) -> Keyword:
    def keyword(check: Check, limit: Any, value: Any, schema: Schema, path: Path) -> Findings:
        check.spend((_bits(value) + _bits(limit)) // 32)
        if not isinstance(value, bool) and not fits(value, limit):
            yield Finding(path, f"{words} {_quoted(limit)}", value)

    return keyword


def _length(fits: Callable[[Any, Any], bool], words: str, unit: str) -> Keyword:
    def keyword(check: Check, limit: Any, value: Any, schema: Schema, path: Path) -> Findings:
        if not isinstance(value, Unread) and not fits(len(value), limit):
            yield Finding(path, f"{words} {_count(limit, unit)}", value)

    return keyword


def _is_multiple(value: Any, of: Any) -> bool:
    # as written: 0.3 is three times 0.1, which it is not in binary
    whole = isinstance(value, int) and isinstance(of, int)
    return bool(value % of == 0 if whole else (_exact(value) / _exact(of)).denominator == 1)


def _bits(number: int | float) -> int:
    return number.bit_length() if isinstance(number, int) else 0


def _exact(number: int | float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _quoted(value: Any) -> str:
    """A value of the schema. Cut before it is written, as this may happen very often."""
    if isinstance(value, str) and len(value) > LONGEST_QUOTE:
        return f"{value[:LONGEST_QUOTE]!r}…"
    if isinstance(value, dict | list):
        return "the object given there" if isinstance(value, dict) else "the array given there"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def _names(names: Collection[str]) -> str:
    shown = [
        repr(name) if len(name) <= LONGEST_NAME else f"a name of {len(name):,} characters"
        for name in islice(names, NAMES_SHOWN)
    ]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _count(number: Any, unit: str) -> str:
    plural = "properties" if unit == "property" else f"{unit}s"
    return f"{number} {unit if number == 1 else plural}"


TYPES: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, ARRAY),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, OBJECT),
    "string": lambda value: isinstance(value, TEXT),
}

KEYWORDS: dict[str, tuple[Keyword, Any]] = {
    "$ref": (ref, ANY),
    "$dynamicRef": (ref, ANY),  # the same where a document is one resource
    "allOf": (all_of, ANY),
    "anyOf": (any_of, ANY),
    "oneOf": (one_of, ANY),
    "not": (not_, ANY),
    "if": (if_, ANY),
    "dependentSchemas": (dependent_schemas, OBJECT),
    "properties": (properties, OBJECT),
    "patternProperties": (pattern_properties, OBJECT),
    "additionalProperties": (additional_properties, OBJECT),
    "propertyNames": (property_names, OBJECT),
    "unevaluatedProperties": (unevaluated_properties, OBJECT),
    "prefixItems": (prefix_items, ARRAY),
    "items": (items, ARRAY),
    "contains": (contains, ARRAY),
    "unevaluatedItems": (unevaluated_items, ARRAY),
    "type": (type_, ANY),
    "enum": (enum, ANY),
    "const": (const, ANY),
    "pattern": (pattern, TEXT),
    "format": (format_, TEXT),
    "required": (required, OBJECT),
    "dependentRequired": (dependent_required, OBJECT),
    "uniqueItems": (unique_items, ARRAY),
    "minimum": (_number(ge, "at least"), NUMBER),
    "maximum": (_number(le, "at most"), NUMBER),
    "exclusiveMinimum": (_number(gt, "more than"), NUMBER),
    "exclusiveMaximum": (_number(lt, "less than"), NUMBER),
    "multipleOf": (_number(_is_multiple, "a multiple of"), NUMBER),
    "minLength": (_length(ge, "at least", "character"), TEXT),
    "maxLength": (_length(le, "at most", "character"), TEXT),
    "minItems": (_length(ge, "at least", "item"), ARRAY),
    "maxItems": (_length(le, "at most", "item"), ARRAY),
    "minProperties": (_length(ge, "at least", "property"), OBJECT),
    "maxProperties": (_length(le, "at most", "property"), OBJECT),
}
