"""Passwords of tests."""

from __future__ import annotations

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class QuickHasher(PBKDF2PasswordHasher):
    """As Django's, with one of its million rounds."""

    iterations = 1
