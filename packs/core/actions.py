"""The Python actions of the core pack. Parameters were validated before they come here."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any


class Failed(Exception):
    """The execution asked for a failure."""


def echo(**parameters: Any) -> dict[str, Any]:
    return parameters


def noop() -> dict[str, Any]:
    return {}


def sleep(*, seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {"seconds": seconds}


def sha256(*, path: str) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"sha256": digest.hexdigest(), "bytes": file.tell()}


def fail(*, message: str = "This action always fails.") -> None:
    raise Failed(message)
