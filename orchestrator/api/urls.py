"""The API's URLs, for `include`."""

from django.urls import path

from orchestrator.api import api

urlpatterns = [path("", api.urls)]
