#!/bin/sh
# tells its parameters and its argument in several forms; the last line is its result
parameters=$(cat)
printf '%s\n' "$parameters"
printf '%s\n' "$parameters" >&2
printf 'user:%s' "$1" | base64 >&2
printf '%s' "$1" | od -An -tx1 | tr -d ' \n'
echo
printf '%s' "$1" | cut -c1-9 | tr -d '\n'
sleep 0.2
printf '%s\n' "$1" | cut -c10-
case "$parameters" in *'"fails": true'*) exit 3 ;; esac
printf '{"given": %s}\n' "$parameters"
