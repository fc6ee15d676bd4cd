"""Requests to the API as spans. This middleware is installed only while traces are on."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from opentelemetry import context, trace

from orchestrator.core.tracing import spans


class TracedRequests:
    """Goes on with the caller's trace, named by its `traceparent`, or begins one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method != "POST" or not request.path.startswith(settings.API_PATHS):
            return self.get_response(request)  # only what may accept something begins a trace
        span = spans.tracer().start_span(
            "POST",
            context=spans.PROPAGATOR.extract({k.lower(): v for k, v in request.headers.items()}),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": "POST"},
        )
        token = context.attach(trace.set_span_in_context(span))
        try:
            response = self.get_response(request)
            if request.resolver_match is not None:
                route = f"/{request.resolver_match.route}"
                span.update_name(f"POST {route}")
                span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                span.set_status(trace.Status(trace.StatusCode.ERROR))
            return response
        finally:
            context.detach(token)
            span.end()
