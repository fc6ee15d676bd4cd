"""The parameters by which a list may be narrowed: those that its filters read."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import get_fields_from_path
from django.db.models import BooleanField, Model
from unfold.contrib.filters.admin import RangeDateTimeFilter


def of_filter(declared: Any, model: type[Model]) -> frozenset[str]:
    """The parameters that a filter reads, which is declared as `list_filter` does it.

    A filter says them itself (`expected_parameters`), but only once it is made, and making one asks
    the database for its choices.
    """
    if isinstance(declared, type):
        return frozenset({declared.parameter_name})  # type: ignore[attr-defined]
    path, kind = (declared, None) if isinstance(declared, str) else declared
    if kind is not None and issubclass(kind, RangeDateTimeFilter):
        return frozenset(f"{path}_{end}_{part}" for end in ("from", "to") for part in (0, 1))
    field: Any = get_fields_from_path(model, path)[-1]
    if field.is_relation:
        exact = f"{path}__{field.target_field.name}__exact"
    elif kind is None and (field.choices or isinstance(field, BooleanField)):
        exact = f"{path}__exact"
    else:
        exact = path
    return frozenset({exact, f"{path}__isnull"})
