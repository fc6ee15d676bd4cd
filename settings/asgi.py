"""ASGI entry point: `uvicorn settings.asgi:application`."""

import os
from importlib import import_module

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from settings.http import ThreadedHandler  # noqa: E402 - needs the settings

# a second of processor time, for which the first probe would wait
import_module(settings.ROOT_URLCONF)

application = ThreadedHandler()
