#!/bin/sh
# work.sh TRACE SECONDS: see work.py, which does the same in Python.
trace() {
    printf '{"event": "%s", "execution": "%s", "attempt": %s, "pid": %s, "at": %s}\n' \
        "$1" "$MSTR_EXECUTION_ID" "$MSTR_ATTEMPT" "$$" "$(date +%s.%N)" >>"$2"
}
trace start "$1"
sleep "$2"
trace end "$1"
