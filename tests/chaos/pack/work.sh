#!/bin/sh
# work.sh TRACE SECONDS: see work.py, which does the same in Python.
result="{\"mark\": \"$MSTR_EXECUTION_ID.$MSTR_ATTEMPT.$$\"}"
trace() {
    printf '{"event": "%s", "execution": "%s", "attempt": %s, "pid": %s, "at": %s, "result": %s}\n' \
        "$1" "$MSTR_EXECUTION_ID" "$MSTR_ATTEMPT" "$$" "$(date +%s.%N)" "$3" >>"$2"
}
trace start "$1" null
sleep "$2"
trace end "$1" "$result"
printf '%s\n' "$result"
