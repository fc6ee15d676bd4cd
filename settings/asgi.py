"""ASGI entry point: `uvicorn settings.asgi:application`."""

import os
from importlib import import_module

import django

from settings import variables

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
with variables.refused_in_one_line():
    django.setup(set_prefix=False)

from django.conf import settings
from django.utils.module_loading import import_string

from settings.http import ThreadedHandler

# a second of processor time, for which the first probe would wait
import_module(settings.ROOT_URLCONF)

import_string(settings.HTTP_AT_START)()

application = import_string(settings.HTTP_DOORS)(ThreadedHandler())

import_string(settings.HTTP_WHEN_LOADED)()
