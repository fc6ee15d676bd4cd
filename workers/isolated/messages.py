"""Messages between a launcher and its warm process: JSON, with its length in front.

A request has `entry_point`, `parameters`, `environment` and `limit_bytes`. An answer has one of
`value`; `refused`, the reason why a value cannot be stored; `exception`, `message` and `traceback`,
with `try_again` if the action asks for another attempt, `task_rejected` if it cannot begin now;
`unavailable`, the reason why there is no such function; `interrupted`.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">I")
LONGEST_BYTES = 8 * 1_048_576
"""A longer answer is not read: its process is killed."""


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body
