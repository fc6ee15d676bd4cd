"""Django's settings. `DATABASE_URL`, `BROKER_URL` and `REDIS_URL` select real servers; without
them everything runs embedded, on SQLite and the SQLite broker below `MUSTER_DATA_DIR`."""

from __future__ import annotations

import os
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from settings import logs, muster
from settings.unfold import UNFOLD as UNFOLD

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

MUSTER = muster.from_environment(os.environ)

DATA_DIR = (BASE_DIR / MUSTER.data_dir).resolve()
# parameters, results and secrets live here: nobody else has any business in it
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)

DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])


def _secret_key() -> str:
    """The configured key, or one that is made once and kept beside the embedded database."""
    if configured := str(env.str("SECRET_KEY", default="")):
        return configured
    path = DATA_DIR / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text()


SESSION = {
    # what is overdue must end within 10 s, so a row that somebody holds is not waited for longer
    "lock_timeout": 3_000,
    # a process that was stopped, or whose host vanished, loses in time what it held: 5 s are left
    # for the next tick to find it, and 5 s to end it. Nothing of ours waits for anything but the
    # database while a transaction is open
    "idle_in_transaction_session_timeout": 10_000,
    # the server, too, asks whether its peer is there: a statement on its way to one that has
    # vanished is under way and not idle
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""PostgreSQL's settings of each session of ours: seconds for keepalives, milliseconds else."""


def _database() -> dict[str, Any]:
    url = env.str("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'muster.db'}")
    config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    if config["ENGINE"] == "django.db.backends.sqlite3":
        config["OPTIONS"] = {
            # a writer takes its lock when it begins: upgrading a read lock later can only fail
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    elif config["ENGINE"] == "django.db.backends.postgresql":
        statement_timeout_ms = int(MUSTER.database_statement_timeout_seconds * 1000)
        config["CONN_MAX_AGE"] = None
        config["CONN_HEALTH_CHECKS"] = True
        config["OPTIONS"] = {
            "connect_timeout": 5,
            "options": " ".join(
                f"-c {name}={value}"
                for name, value in (SESSION | {"statement_timeout": statement_timeout_ms}).items()
            ),
            # a peer that vanished must not hold a thread for the kernel's two hours
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,  # the same for data on its way: no keepalive is sent then
        } | config.get("OPTIONS", {})
    else:
        raise ImproperlyConfigured(
            f"DATABASE_URL: expected postgresql:// or sqlite://, found {url.split(':', 1)[0]}://"
        )
    return config


SECRET_KEY = _secret_key()
DATABASES = {"default": _database()}
BROKER_URL = env.str("BROKER_URL", default=f"sqlitemq:///{DATA_DIR / 'broker.db'}")
REDIS_URL = env.str("REDIS_URL", default="")

if REDIS_URL:
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            # without limits, whoever asks a Redis that hangs would hang with it
            "OPTIONS": {"socket_connect_timeout": 1.0, "socket_timeout": 1.0},
        }
    }

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "orchestrator.core.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "orchestrator.core",
    "orchestrator.workflows",
    "orchestrator.access",
    "orchestrator.drills",
]


def _directory_of(package: str) -> Path:
    """Where an installed package is, found without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImproperlyConfigured(f"{package} is not installed; see requirements.txt")
    return Path(spec.origin).parent


API_AUTHENTICATION = "orchestrator.access.api.BearerToken"

# ninja is no app here (see orchestrator/core/api/docs_page.py): its templates and static files are
NINJA_DIR = _directory_of("ninja")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [NINJA_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

ROOT_URLCONF = "settings.urls"
LOGIN_REDIRECT_URL = "admin:index"
ASGI_APPLICATION = "settings.asgi.application"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# columns that an index only includes are PostgreSQL's; SQLite does without them
SILENCED_SYSTEM_CHECKS = ["models.W040"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [NINJA_DIR / "static"]
# served from the installed packages, so that a fresh machine needs no collectstatic
WHITENOISE_USE_FINDERS = True

DATA_UPLOAD_MAX_MEMORY_SIZE = MUSTER.max_request_bytes
# each of them keeps a database connection; see settings/http.py
HTTP_THREADS = env.int("HTTP_THREADS", default=16)

LOGGING = logs.configure(
    level=env.str("LOG_LEVEL", default="INFO"),
    as_json=env.str("LOG_FORMAT", default="") == "json",
)
