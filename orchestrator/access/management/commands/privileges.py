"""`manage.py privileges`: logins of the services at PostgreSQL and RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from kombu import Connection

from orchestrator.access import privileges
from orchestrator.access.privileges import credentials, postgresql, rabbitmq
from orchestrator.access.privileges.credentials import Credentials
from orchestrator.access.privileges.rabbitmq import BrokerUser
from orchestrator.core import fleet
from orchestrator.core.database import sqlstate
from orchestrator.core.management import output

INSUFFICIENT_PRIVILEGE = "42501"


class Command(output.MusterCommand):
    help = "Logins of the services at PostgreSQL and RabbitMQ, each with the rights that it needs."
    permissions = dict.fromkeys(("credentials", "postgresql", "rabbitmq"), "access.manage")

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        create = verbs.add_parser(
            "credentials", help="Write files with the URLs of each service, with new passwords."
        )
        create.add_argument(
            "directory", type=Path, help="Existing files in it are left as they are."
        )
        create.add_argument(
            "--worker",
            action="append",
            default=[],
            metavar="NAME",
            dest="workers",
            help="A worker with a broker user of its own; may be repeated.",
        )
        database = verbs.add_parser(
            "postgresql", help="Print the SQL of the roles and their grants, or run it."
        )
        _add_credentials(database)
        database.add_argument(
            "--apply",
            action="store_true",
            help="Run it. DATABASE_URL must be that of the owner, who may create roles.",
        )
        broker = verbs.add_parser(
            "rabbitmq", help="Print the users and permissions for rabbitmqctl import_definitions."
        )
        _add_credentials(broker)
        broker.add_argument(
            "--events",
            action="store_true",
            help="Let executors and workers send events (Flower); also by MUSTER_CELERY_EVENTS.",
        )
        broker.add_argument(
            "--apply",
            metavar="URL",
            help="Send them to RabbitMQ's management plugin, as the user of BROKER_URL; "
            "http://mq.internal:15672",
        )

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "credentials": self.create_credentials,
            "postgresql": self.postgresql,
            "rabbitmq": self.rabbitmq,
        }
        verbs[verb](**options)

    def create_credentials(self, *, directory: Path, workers: Sequence[str], **_: Any) -> None:
        created = credentials.create(
            directory,
            database_url=settings.DATABASE_URL,
            broker_url=settings.BROKER_URL,
            workers=workers,
        )
        for path in created:
            self.stdout.write(str(path))
        if not created:
            self.stdout.write("All services have their logins; nothing was changed.")

    def postgresql(self, *, apply: bool, **source: Any) -> None:
        using = DEFAULT_DB_ALIAS
        database = postgresql.inspect(using)
        postgresql.require_declared(using)
        logins = {each.database.user: each.database.password for each in _read(**source)}
        verifiers = {
            role: postgresql.verifier(password, role, using) for role, password in logins.items()
        }
        roles = [privileges.login(service) for service in privileges.SERVICES]
        statements = [
            *postgresql.role_statements(roles, verifiers),
            *postgresql.grant_statements(database, privileges.SERVICES),
        ]
        if not apply:
            self.stdout.write(postgresql.script(statements, using))
            return
        try:
            postgresql.carry_out(statements, using)
        except ProgrammingError as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
            raise CommandError(
                f"{str(error).splitlines()[0]}. Nothing was changed. Run it as the owner of the "
                "tables with the right to create roles, or run what this command prints without "
                "--apply as a superuser: ... | psql"
            ) from None
        postgresql.require_powerless(roles, using)
        self.stdout.write(f"{', '.join(roles)}: granted.")

    def rabbitmq(self, *, events: bool, apply: str | None, **source: Any) -> None:
        logins = {(each.service, each.worker): each.broker for each in _read(**source)}
        names = [(service, "") for service in privileges.SERVICES]
        users = []
        for service, worker in logins or names:
            login = logins.get((service, worker))
            users.append(
                BrokerUser(
                    login.user if login else privileges.login(service),
                    rabbitmq.permissions(
                        service,
                        # its id is in the names of its queues
                        worker_id=fleet.enlist(name=worker).pk if worker else None,
                        sends_events=events,
                    ),
                    login.password if login else None,
                )
            )
        virtual_host = Connection(settings.BROKER_URL).virtual_host or "/"
        definitions = rabbitmq.definitions(users, virtual_host=virtual_host)
        if apply is None:
            self.show_json(definitions)
            return
        rabbitmq.send(definitions, url=apply, broker_url=settings.BROKER_URL)
        self.stdout.write(f"{', '.join(user.name for user in users)}: permitted.")


def _add_credentials(parser: CommandParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--credentials",
        type=Path,
        dest="directory",
        metavar="DIRECTORY",
        help="The files with the passwords; without them no password is set.",
    )
    source.add_argument(
        "--from-environment",
        action="store_true",
        help="Take the passwords from API_DATABASE_URL, API_BROKER_URL, and so on.",
    )


def _read(
    *, directory: Path | None = None, from_environment: bool = False, **_: Any
) -> list[Credentials]:
    if from_environment:
        return credentials.of_environment(settings.SERVICE_SECRETS)
    return [] if directory is None else credentials.read(directory)
