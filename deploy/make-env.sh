#!/bin/sh
# Make deploy/.env with random passwords, for compose.yaml. What is in it already is left as it is.
set -eu
cd "$(dirname "$0")"

# what compose.yaml does not read would be ignored in silence
for name in $(sed -n 's/^ *\(export \)\{0,1\}\(MUSTER_[A-Z0-9_]*\)=.*/\2/p' .env 2>/dev/null); do
    grep -q "[$]{$name:" compose.yaml || {
        echo "deploy/.env has $name, which services read from deploy/muster.env: move it there." >&2
        exit 1
    }
done

# letters and digits: they become part of URLs
random() { LC_ALL=C tr -dc 'A-Za-z0-9' </dev/urandom | head -c "$1"; }

umask 077
: >.env.new
[ ! -e .env ] || cat .env >.env.new
for name in POSTGRES_PASSWORD RABBITMQ_PASSWORD REDIS_PASSWORD SECRET_KEY \
    API_DATABASE_PASSWORD API_BROKER_PASSWORD EXECUTOR_DATABASE_PASSWORD EXECUTOR_BROKER_PASSWORD \
    BEAT_DATABASE_PASSWORD BEAT_BROKER_PASSWORD WORKER_DATABASE_PASSWORD WORKER_BROKER_PASSWORD \
    NOTIFIER_DATABASE_PASSWORD NOTIFIER_BROKER_PASSWORD
do
    grep -q "^$name=" .env.new || echo "$name=$(random 64)" >>.env.new
done
if cmp -s .env .env.new; then
    rm .env.new
else
    mv .env.new .env
    echo "Made deploy/.env with new passwords." >&2
fi
