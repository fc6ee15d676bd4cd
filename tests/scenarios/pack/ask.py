#!/usr/bin/env python3
"""Ask people with the token of the execution; its argument is where the API listens."""

import json
import os
import sys
import urllib.request

body = json.dumps({"prompt": "By token?", "purpose": "token"}).encode()
request = urllib.request.Request(  # noqa: S310 - the test's own
    f"{sys.argv[1]}/api/v1/inquiries",
    data=body,
    headers={
        "Authorization": f"Bearer {os.environ['MSTR_TOKEN']}",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
    print(json.load(answer)["id"])  # noqa: T201 - it is a command
