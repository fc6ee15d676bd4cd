"""The content of the deliveries of the benchmark of webhooks."""

from __future__ import annotations

import json

BODY = json.dumps({"ref": "refs/heads/main", "commits": [{"id": n} for n in range(40)]})
"""Half a kilobyte."""
