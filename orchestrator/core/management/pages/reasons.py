"""The page of the reasons of attempts that ended."""

from __future__ import annotations

from orchestrator.core.management.markdown import page_of, table_of
from orchestrator.core.reasons import Known, Reason
from orchestrator.core.retry_policy import RETRYABLE


def page() -> str:
    parts = [
        "Every attempt that ends has a reason. It says what is known about the action, and so "
        "whether it is safe to run it again. That of an execution is about its last attempt: an "
        "earlier one may have started.",
    ]
    for known in Known:
        reasons = [reason for reason in Reason if reason.known is known]
        parts += [
            f"## `{known.value}`",
            f"{known.text}.",
            table_of(
                ("Code", "Text", "May be retried"),
                [(f"`{r}`", r.text, "yes" if r in RETRYABLE else "no") for r in reasons],
            ),
        ]
    return page_of("Reasons", *parts)
