"""ASGI entry point: `uvicorn settings.asgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup(set_prefix=False)

from settings.http import ThreadedHandler  # noqa: E402 - needs the settings

application = ThreadedHandler()
