"""`manage.py api`: serve the API, the admin, the probes and the metrics."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.core.management import arguments, output, serving


class Command(output.MusterCommand):
    permissions = {"": output.NOBODY}
    help = "Serve the API and the admin. Start as many as you like."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--processes",
            type=arguments.whole(1, 64),
            default=1,
            metavar="N",
            help="on this port (1)",
        )
        parser.add_argument(
            "--tls-certificate", metavar="FILE", help="serve https itself, without a proxy"
        )
        parser.add_argument("--tls-key", metavar="FILE")
        parser.add_argument("--access-log", action="store_true", help="log a line for each request")

    def handle(self, *args: Any, host: str, port: int, access_log: bool, **options: Any) -> None:
        certificate, key = options["tls_certificate"], options["tls_key"]
        if bool(certificate) != bool(key):
            raise CommandError("--tls-certificate and --tls-key: give both, or none")
        serving.run(
            "settings.asgi:application",
            host=host,
            port=port,
            workers=options["processes"],
            access_log=access_log,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            # a stream whose client takes nothing any more would never end
            graceful_seconds=25,
        )
