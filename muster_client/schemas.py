"""The parameters of a function, by its type hints: their JSON Schema, and their values."""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}: parameters have names, so an action cannot take it",
    inspect.Parameter.VAR_KEYWORD: "**{}: expected a name and a type hint for each parameter",
    inspect.Parameter.POSITIONAL_ONLY: "{}: parameters come by name, so a `/` cannot follow it",
}


class WithoutTitles(GenerateJsonSchema):
    """A schema whose properties have no titles: those only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Parameters:
    """The parameters of a function. `is_bound`: its first one is `self`."""

    def __init__(self, function: Callable[..., Any], *, is_bound: bool = False) -> None:
        """Raises NameError and the like for hints that cannot be evaluated."""
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
        self._parameters = parameters[1:] if is_bound else parameters
        self._hints = {name: hints[name] for name in hints if name != "return"}

    def problems(self) -> Iterator[str]:
        """The problems that prevent a schema, each with the name of its parameter. Without a hint,
        a parameter takes any value."""
        for parameter in self._parameters:
            name = parameter.name
            if parameter.kind in REFUSED:
                yield REFUSED[parameter.kind].format(name)
            elif name in self._hints and (why := _why_no_schema(self._hints[name])):
                yield f"{name}: expected a type that JSON Schema can describe, found {why}"

    def untyped(self) -> list[str]:
        """The names of the parameters without a type hint."""
        return [each.name for each in self._parameters if each.name not in self._hints]

    def schema(self) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a default that JSON cannot hold is left out
            schema = self._model().model_json_schema(schema_generator=WithoutTitles)
        schema.pop("title", None)
        return schema

    def converted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the hints promise. Defaults are left to the function."""
        model = self._model().model_validate(dict(values))
        return {
            parameter.name: getattr(model, f"p{number}")
            for number, parameter in enumerate(self._parameters)
            if f"p{number}" in model.model_fields_set
        }

    def _model(self) -> type[BaseModel]:
        # the names of its fields are ours, as a parameter may be called `json`
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self._parameters):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            hint = self._hints.get(parameter.name, Any)
            fields[f"p{number}"] = (hint, Field(default, alias=parameter.name))
        return create_model("Parameters", __config__=ConfigDict(extra="forbid"), **fields)


def _why_no_schema(hint: Any) -> str:
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError, SchemaError, TypeError) as error:
        return f"{getattr(hint, '__name__', hint)} ({' '.join(str(error).split())})"
    return ""
