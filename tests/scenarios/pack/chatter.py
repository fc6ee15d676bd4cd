#!/usr/bin/env python3
# chatter.py GATE: the token comes as JSON on stdin
# ruff: noqa: T201 - it is a command
import json
import os
import sys
import time

token = json.load(sys.stdin)["token"]
half = len(token) // 2
print(f"attempt {os.environ['MSTR_ATTEMPT']}", flush=True)
print("to stderr", file=sys.stderr, flush=True)
print(f"token {token[:half]}", end="", flush=True)
time.sleep(1.5)  # the second half comes with another chunk
print(f"{token[half:]} said", flush=True)
print("." * 2_000, flush=True)  # what may be the beginning of a secret is held back
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("the end", flush=True)
