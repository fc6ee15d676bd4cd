#!/bin/sh
# defer.sh TRACE SECONDS: cannot begin the first time; then as work.sh.
said="$1.deferred.$MSTR_EXECUTION_ID"
if [ -e "$said" ]; then
    exec "$(dirname "$0")/work.sh" "$@"
fi
: >"$said"
printf '{"event": "defer", "execution": "%s", "attempt": %s, "pid": %s, "at": %s, "result": null}\n' \
    "$MSTR_EXECUTION_ID" "$MSTR_ATTEMPT" "$$" "$(date +%s.%N)" >>"$1"
exit 75
