"""Django's settings. `DATABASE_URL`, `BROKER_URL` and `REDIS_URL` select real servers; without them
everything runs embedded, on SQLite and the SQLite broker in `MUSTER_DATA_DIR`."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import environ
from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured

from settings import brokers, logs, muster, releases, server_urls, traces, variables
from settings.unfold import UNFOLD as UNFOLD

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

MUSTER = muster.from_environment(os.environ)

DATA_DIR = (BASE_DIR / MUSTER.data_dir).resolve()


def _make_data_dir() -> None:
    """Parameters, results and secrets are stored there: no other user may read it."""
    try:
        DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"MUSTER_DATA_DIR={DATA_DIR}: {error.strerror}.") from None
    mode = stat.S_IMODE(DATA_DIR.stat().st_mode)
    is_ours = any((DATA_DIR / name).exists() for name in ("secret_key", "muster.db", "broker.db"))
    # a directory that is shared with others, such as /tmp, is not ours to close
    if mode & 0o077 and (is_ours or not any(DATA_DIR.iterdir())):
        with suppress(OSError):  # another owner's; `check` warns
            DATA_DIR.chmod(0o700)


_make_data_dir()

DEBUG = variables.switch(os.environ, "DEBUG")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

if MUSTER.tls == "on":
    # uvicorn says what the scheme is: it believes X-Forwarded-Proto of FORWARDED_ALLOW_IPS alone.
    # Django's SECURE_PROXY_SSL_HEADER would believe everybody
    SECURE_SSL_REDIRECT = True
    # asked on this host, past the proxy
    SECURE_REDIRECT_EXEMPT = [r"^health/", r"^api/v1/health/", r"^metrics$"]
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    CSRF_TRUSTED_ORIGINS = CSRF_TRUSTED_ORIGINS or [
        f"https://{host.replace('.', '*.', 1) if host.startswith('.') else host}"
        for host in ALLOWED_HOSTS
        if host != "*"
    ]


def _secret_key() -> str:
    """The configured key, or one that is generated once and kept beside the embedded database."""
    if configured := str(env.str("SECRET_KEY", default="")):
        return configured
    path = DATA_DIR / "secret_key"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=DATA_DIR, prefix="secret_key-") as file:
            file.write(secrets.token_urlsafe(50))
            file.flush()
            # whole or not at all, and the first of several services that start at once wins
            with suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_text()


SESSION = {
    # overdue executions must end within 10 s, so a locked row is waited for no longer than this
    "lock_timeout": 3_000,
    # a process that was stopped, or whose host vanished, loses its locks; those of executions it
    # loses sooner (see `database.hold_briefly`). While a transaction is open, our code waits for
    # nothing but the database
    "idle_in_transaction_session_timeout": 10_000,
    # plans over views look expensive and are not: compiling one took 300 times as long as the query
    "jit": "off",
    # the server also probes its peer: a statement whose client has vanished is active, not idle
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""PostgreSQL's settings of our sessions: seconds for keepalives, milliseconds otherwise."""


SQLITE_CONNECTION_SECONDS = 60


def _database() -> dict[str, Any]:
    url = env.str("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'muster.db'}")
    server_urls.refuse_malformed("DATABASE_URL", url, server_urls.DATABASE)
    config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    if config["ENGINE"] == "django.db.backends.sqlite3":
        if Path(config["NAME"]).parent == DATA_DIR:
            # SQLite would make it with the umask's mode, and its log beside it with the same
            os.close(os.open(config["NAME"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # opening one costs as much as ten statements; a file that was exchanged is noticed soon
        config["CONN_MAX_AGE"] = SQLITE_CONNECTION_SECONDS
        config["OPTIONS"] = {
            # a writer takes its lock at the beginning: upgrading a read lock later can only fail
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    else:
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
            "tcp_user_timeout": 10_000,  # the same for data in flight: no keepalive is sent then
        } | config.get("OPTIONS", {})
    return config


SECRET_KEY = _secret_key()
DATABASES = {"default": _database()}
# for `manage.py privileges`: this process's own, and the URLs of all services for who sets them up
DATABASE_URL = env.str("DATABASE_URL", default="")
SERVICE_SECRETS = {
    name: value
    for name, value in os.environ.items()
    if name.endswith(("_DATABASE_URL", "_BROKER_URL"))
}
BROKER_URL = env.str("BROKER_URL", default=f"sqlitemq:///{DATA_DIR / 'broker.db'}")
server_urls.refuse_malformed("BROKER_URL", BROKER_URL, server_urls.BROKER)
# of RabbitMQ's management API, for `manage.py topology check`; empty: on the broker's host
BROKER_MANAGEMENT_URL = env.str("BROKER_MANAGEMENT_URL", default="")
if BROKER_MANAGEMENT_URL:
    server_urls.refuse_malformed(
        "BROKER_MANAGEMENT_URL", BROKER_MANAGEMENT_URL, server_urls.MANAGEMENT
    )
GATE_BROKERS = brokers.of_gates(MUSTER.gate_brokers)
# of every amqps:// connection; others have none
BROKER_TLS = brokers.tls(MUSTER)
REDIS_URL = env.str("REDIS_URL", default="")
REDIS_SECONDS = 0.25
if REDIS_URL:
    server_urls.refuse_malformed("REDIS_URL", REDIS_URL, server_urls.REDIS)


TRACES = traces.are_on(os.environ)


def caches(redis_url: str) -> dict[str, Any]:
    """Django's CACHES, for orchestrator/core/shared_cache.py: what processes share, and what each
    has for itself. Without Redis both are the same."""
    of_process = {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "process",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
    redis = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": [redis_url],
        "KEY_PREFIX": MUSTER.namespace,
        "OPTIONS": {
            # a request that finds it hanging waits for this long
            "socket_connect_timeout": REDIS_SECONDS,
            "socket_timeout": REDIS_SECONDS,
            "serializer": "orchestrator.core.shared_cache.JsonValues",
        },
    }
    return {"default": redis if redis_url else of_process, "process": of_process}


CACHES = caches(REDIS_URL)

# Django's own two are left as they are; see orchestrator/core/packs/store.py
STORAGES: dict[str, Any] = dict(global_settings.STORAGES)
if MUSTER.pack_storage_dir:
    STORAGES["releases"] = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            "location": str((BASE_DIR / MUSTER.pack_storage_dir).resolve()),
            "file_permissions_mode": 0o640,
            "directory_permissions_mode": 0o750,
        },
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
    "orchestrator.inquiries",
    "orchestrator.workflows",
    "orchestrator.access",
    "orchestrator.policies",
    "orchestrator.rollups",
    "orchestrator.queues",
    "orchestrator.automation",
    "orchestrator.bulk",
    "orchestrator.notifications",
    "orchestrator.console",
    "orchestrator.drills",
]


def _directory_of(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImproperlyConfigured(f"{package} is not installed; see requirements.txt")
    return Path(spec.origin).parent


API_AUTHENTICATION = "orchestrator.access.api.bearer.BearerToken"
# the beginnings of the paths that the API answers
API_PATHS = ("/api/", "/v1/")
AUTHORIZER = "orchestrator.access.authorizer.Authorizer"
# asked before a body that comes in pieces is read; see settings/http.py
HTTP_REFUSAL = "orchestrator.core.api.admission.refusal"
HTTP_OPEN_TO_STRANGERS = "orchestrator.core.api.admission.is_open"
# answers streams, and passes everything else on
HTTP_DOORS = "workers.notifier.doors.Doors"
HTTP_HANDLER = "settings.http.ThreadedHandler"
# called when an API process starts
HTTP_AT_START = "orchestrator.core.publisher.connect_soon"
# and when it has loaded what it needs
HTTP_WHEN_LOADED = "orchestrator.core.garbage.settle"

# ninja is not an app here (see orchestrator/core/api/docs_page.py), but its templates and static
# files are used
NINJA_DIR = _directory_of("ninja")

MIDDLEWARE = [
    "settings.headers.SafeHeaders",
    "orchestrator.access.audit.requests.AuditedRequests",
    "settings.gzipped.GzippedPages",
    "settings.nul.WithoutNul",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "settings.messages.MessagesOfPages",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

if TRACES:
    MIDDLEWARE.insert(0, "orchestrator.core.tracing.requests.TracedRequests")

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "orchestrator" / "core" / "theme", NINJA_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"muster": "orchestrator.core.admin.tags"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

ROOT_URLCONF = "settings.urls"
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "console:now"
ASGI_APPLICATION = "settings.asgi.application"

AUTHENTICATION_BACKENDS = ["orchestrator.access.logins.BrakedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# included columns of an index exist only in PostgreSQL; SQLite ignores them
SILENCED_SYSTEM_CHECKS = ["models.W040"]
if MUSTER.tls == "on":
    # browsers' own list of https hosts takes whole domains, which Muster's host seldom is
    SILENCED_SYSTEM_CHECKS.append("security.W021")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = "settings.formats"

# the release is a part of the path: a browser asks for a file once, and again after an upgrade
_STATIC_FILES = [_directory_of("unfold") / "static", NINJA_DIR / "static"]
STATIC_URL = f"static/{releases.fingerprint(_STATIC_FILES)}/"
STATICFILES_DIRS = [NINJA_DIR / "static"]
# served from the installed packages, so that a fresh machine needs no collectstatic
WHITENOISE_USE_FINDERS = True
WHITENOISE_IMMUTABLE_FILE_TEST = "."  # every path

DATA_UPLOAD_MAX_MEMORY_SIZE = MUSTER.max_request_bytes
# the paths that take more, and how much: archives of packs
LARGE_BODIES = {"/api/v1/packs": int(MUSTER.pack_limit_mb * 1_048_576)}
# each thread keeps a database connection; see settings/http.py
HTTP_THREADS = variables.whole(os.environ, "HTTP_THREADS", 16, 1_000)

LOG_AS_JSON = variables.one_of(os.environ, "LOG_FORMAT", ("", "json")) == "json"
LOGGING = logs.configure(
    level=variables.one_of(os.environ, "LOG_LEVEL", logs.LEVELS), as_json=LOG_AS_JSON
)
