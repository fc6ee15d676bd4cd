"""Who calls the API in tests, and what they check of every answer."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

BASE = "/api/v1"
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
    "additionalProperties": {},
}


class Caller:
    """A client that holds a token; it checks what holds for each answer."""

    def __init__(self, text: str | None, base: str = BASE) -> None:
        self.base = base
        headers = {} if text is None else {"authorization": f"Bearer {text}"}
        self.client = Client(headers=headers, raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self._checked(self.client.get(self.base + path, query))

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.send(path, json.dumps(body) if body is not None else "", **options)

    def patch(self, path: str, body: Any = None) -> Any:
        return self._checked(
            self.client.patch(self.base + path, json.dumps(body), content_type="application/json")
        )

    def put(self, path: str, body: Any = None, **headers: str) -> Any:
        options: Any = {"content_type": "application/json", "headers": headers}
        return self._checked(self.client.put(self.base + path, json.dumps(body), **options))

    def delete(self, path: str) -> Any:
        return self._checked(self.client.delete(self.base + path))

    def send(self, path: str, body: str | bytes, content_type: str = "application/json") -> Any:
        return self._checked(self.client.post(self.base + path, body, content_type=content_type))

    def _checked(self, response: Any) -> Any:
        if response.status_code >= 400:
            assert response["Content-Type"] == "application/problem+json", response.content
            problem = response.json()
            assert problem["status"] == response.status_code
            assert {"type", "title", "status", "detail", "instance", "errors"} == problem.keys()
            assert "Traceback" not in response.content.decode()
        return response


def pointers(response: Any) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]
