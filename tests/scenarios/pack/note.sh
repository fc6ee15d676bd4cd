#!/bin/sh
# note.sh JOURNAL LABEL SECONDS CHILDREN GATE: see notes.py, which does the same in Python.
journal=$1 label=$2 seconds=$3 children=$4 gate=$5

note() {
    printf '{"event": "%s", "label": "%s", "execution": "%s", "attempt": %s, "pid": %s, "at": %s}\n' \
        "$1" "$label" "$MSTR_EXECUTION_ID" "$MSTR_ATTEMPT" "$$" "$(date +%s.%N)" >>"$journal"
}

note start
while [ "$children" -gt 0 ]; do
    setsid sh -c 'sleep 600 & sleep 600' &
    children=$((children - 1))
done
sleep "$seconds"
while [ -n "$gate" ] && [ ! -e "$gate" ]; do
    sleep 0.05
done
note end
