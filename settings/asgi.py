"""ASGI entry point: `uvicorn settings.asgi:application`."""

import gc
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

# all of this stays: a full collection would look through it for a tenth of a second, and answer
# nobody meanwhile
gc.freeze()
