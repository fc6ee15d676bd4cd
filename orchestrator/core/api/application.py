"""django-ninja with the errors of this API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, get_args, get_origin

import structlog
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError, ValidationErrorContext
from ninja.openapi.schema import REF_TEMPLATE, OpenAPISchema
from ninja.operation import Operation
from ninja.schema import NinjaGenerateJsonSchema
from pydantic import BaseModel, SecretStr
from pydantic_core import ErrorDetails

from orchestrator.core import spelling
from orchestrator.core.api import access, problems
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import OF_A_BODY
from orchestrator.core.database import IDLE_IN_TRANSACTION, READ_ONLY, sqlstate
from orchestrator.core.errors import Conflict, Forbidden, NotFound, Refused, Unavailable
from orchestrator.core.json_values import pointer
from orchestrator.core.redaction import is_name_of_secret, quoted

log = structlog.get_logger(__name__)


class MusterAPI(NinjaAPI):
    """An API whose errors are problem+json, in its answers and in its document."""

    def set_default_exception_handlers(self) -> None:
        answers: Mapping[type[Exception], Callable[[Any], Problem]] = {
            Problem: lambda problem: problem,
            ValidationError: _not_valid,
            HttpError: _of_ninja,
            RequestDataTooBig: lambda _: problems.too_large(settings.MUSTER.max_request_bytes),
            UnreadablePostError: lambda _: problems.plain(400, "The body could not be read"),
            Forbidden: lambda error: problems.forbidden(str(error)),
            NotFound: lambda error: problems.not_found(str(error)),
            Conflict: problems.conflict,
            Refused: problems.refused,
            Unavailable: problems.unavailable,
            OperationalError: _database_unavailable,
            InterfaceError: _database_unavailable,
            InternalError: _session_lost,
            Exception: _internal,
        }
        for kind, answer in answers.items():
            self.add_exception_handler(kind, _handler(answer))

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        return ValidationError(
            [
                {
                    "source": context.model.__ninja_param_source__,
                    "where": _where(context.model, error),
                    "message": _message(context.model, error),
                }
                for context in error_contexts
                for error in context.pydantic_validation_error.errors(include_url=False)
            ]
        )

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        schema = Document(self, prefix)
        for operations in schema["paths"].values():
            for operation in operations.values():
                if 401 in operation["responses"]:
                    operation["responses"] = _also(operation["responses"], [429])
                if "requestBody" in operation:
                    operation["responses"] = _also(operation["responses"], OF_A_BODY)
        return schema


class Document(OpenAPISchema):
    """The document of the API; each operation says which permission it needs."""

    def responses(self, operation: Operation) -> dict[int, dict[str, Any]]:
        """Describe every problem as the same one."""
        responses: dict[int, dict[str, Any]] = super().responses(operation)
        name = problems.ProblemDetails.__name__
        schema = problems.ProblemDetails.model_json_schema(
            mode="serialization",
            ref_template=REF_TEMPLATE,
            schema_generator=NinjaGenerateJsonSchema,
        )
        self.add_schema_definitions({**schema.pop("$defs"), name: schema})
        content = {"schema": {"$ref": REF_TEMPLATE.format(model=name)}}
        for status, response in responses.items():
            if status >= 400:
                response["content"] = {problems.CONTENT_TYPE: content}
        return responses

    def operation_details(self, operation: Operation) -> dict[str, Any]:
        details: dict[str, Any] = super().operation_details(operation)
        for each in operation.auth_callbacks:
            if isinstance(each, access.Needs):
                details["x-permission"] = each.permission
            elif isinstance(each, access.Open):
                details["x-open-because"] = each.why
        return details

    def operation_security(self, operation: Operation) -> list[dict[str, Any]] | None:
        """Name the authentication, which is the same for all."""
        if not operation.auth_callbacks or isinstance(operation.auth_callbacks[0], access.Open):
            return None
        name = type(access.authentication()).__name__
        schema = getattr(access.authentication(), "openapi_security_schema", None)
        if schema is not None:
            self.securitySchemes[name] = schema
        return [{name: []}]


def _also(responses: Mapping[int, Any], statuses: Iterable[int]) -> dict[int, Any]:
    """Add problems that no operation says of itself: what every known caller may be answered, and
    what every route with a body can answer."""
    added = {
        status: {**responses[401], "description": HTTPStatus(status).phrase} for status in statuses
    }
    return dict(sorted({**added, **responses}.items()))


def _handler(answer: Callable[[Any], Problem]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: problems.respond(request, answer(error))


def _not_valid(error: ValidationError) -> Problem:
    if any(problem["source"] == "path" for problem in error.errors):
        # no row has such an id
        return problems.not_found("Nothing has this id")
    return problems.invalid(
        FieldProblem(pointer=problem["where"], message=problem["message"])
        for problem in error.errors
    )


def _of_ninja(error: HttpError) -> Problem:
    # ninja wraps every exception of the body's parser
    if isinstance(error.__cause__, Problem):
        return error.__cause__
    return problems.plain(error.status_code, str(error))


def _database_unavailable(error: Exception) -> Problem:
    # without its stack: while the database is down, every request logs this
    log.error("database unavailable", error=str(error))
    return problems.database_unavailable()


def _session_lost(error: Exception) -> Problem:
    """Answer an error that PostgreSQL calls internal: two of them are only about the session."""
    if sqlstate(error) == READ_ONLY:
        log.error("database is read-only", error=str(error))
        return problems.database_read_only()
    if sqlstate(error) == IDLE_IN_TRANSACTION:
        return _database_unavailable(error)
    return _internal(error)


def _internal(error: Exception) -> Problem:
    log.error("request failed", exc_info=error)
    return problems.internal()


# --- pydantic's errors, as pointers and sentences ------------------------------------------------


def _where(model: Any, error: ErrorDetails) -> str:
    # the first part is the name of the view's argument, which callers do not know
    path = error["loc"][1:]
    if model.__ninja_param_source__ == "body":
        return pointer(path)
    return f"?{'.'.join(str(part) for part in path or error['loc'])}"


def _message(model: Any, error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is required"
    if error["type"] == "extra_forbidden":
        return _unknown(str(error["loc"][-1]), _fields_around(model, error["loc"]))
    value = error["input"]
    if not isinstance(value, bool | int | float | str):
        return _sentence(error)
    found = quoted(value) if _may_be_quoted(model, error["loc"]) else "a value that is secret"
    return f"{_sentence(error)}, found {found}"


def _may_be_quoted(model: Any, loc: tuple[str | int, ...]) -> bool:
    """Return False for a field that holds a secret, by its type or by its name."""
    if any(isinstance(part, str) and is_name_of_secret(part) for part in loc[1:]):
        return False
    fields = model.model_fields
    for part in loc:
        field = fields.get(part) if isinstance(part, str) else None
        if field is None:
            return True
        if field.annotation is SecretStr:
            return False
        fields = next((each.model_fields for each in _models_in(field.annotation)), {})
    return True


def _sentence(error: ErrorDetails) -> str:
    return error["msg"].replace("Input should be", "expected", 1).replace("Value error, ", "", 1)


def _unknown(name: str, known: list[str]) -> str:
    near = spelling.near(name, known, least=0.5)
    if near:
        return f"is not a field; did you mean {near}?"
    return f"is not a field; known are {', '.join(known) or 'none'}"


def _fields_around(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """The fields of the model that the last part of `loc` was addressed to."""
    for part in loc[:-1]:
        if isinstance(part, str):
            model = next(_models_in(model.model_fields[part].annotation))
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def refuse_unknown_parameters(request: HttpRequest, known: type[BaseModel]) -> None:
    """Refuse query parameters that are unknown, or given twice where one counts: a typo must not
    widen a filter, and none is dropped."""
    fields = known.model_fields
    errors = []
    for name, values in request.GET.lists():
        if name not in fields:
            errors.append(FieldProblem(pointer=f"?{name}", message=_unknown(name, list(fields))))
        elif len(values) > 1 and get_origin(fields[name].annotation) is not list:
            message = f"expected once, found {len(values)} times"
            errors.append(FieldProblem(pointer=f"?{name}", message=message))
    if errors:
        raise problems.invalid(errors)
