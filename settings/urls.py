"""URLs: the console, the API, the admin, the probes, the metrics."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

admin.autodiscover()

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="console:now")),
    path("console/", include("orchestrator.console.urls")),
    path("admin/", admin.site.urls),
    path("", include("orchestrator.core.api.urls")),
    path("health/", include("orchestrator.core.api.probes")),
    path("metrics", include("orchestrator.core.api.metrics")),
]

handler500 = "orchestrator.console.failures.server_error"
handler404 = "orchestrator.console.failures.not_found"
handler400 = "orchestrator.core.api.urls.bad_request"
