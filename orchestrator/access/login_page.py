"""The login page: it says how long to wait."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm

from orchestrator.core import words


class LoginForm(AuthenticationForm):
    def get_invalid_login_error(self) -> ValidationError:
        wait_seconds = getattr(self.request, "login_wait_seconds", 0)
        if not wait_seconds:
            error: ValidationError = super().get_invalid_login_error()
            return error
        return ValidationError(
            f"Too many failed logins. The next attempt is looked at in {words.span(wait_seconds)}.",
            code="braked",
        )
