"""Muster's settings, with errands."""

from settings.base import *  # noqa: F403 - all of them
from settings.base import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.errands"]
