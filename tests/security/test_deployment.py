"""What deploy/ ships: no default password, no shared key, services without privileges."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from django.core.management import get_commands, load_command_class
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.scenarios.installation import REPOSITORY
from tests.servers import free_port

DEPLOY = REPOSITORY / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SECRETS = ("POSTGRES_PASSWORD", "RABBITMQ_PASSWORD", "REDIS_PASSWORD", "SECRET_KEY")
LOGINS = {
    f"{service}_{server}_PASSWORD"
    for service in ("API", "EXECUTOR", "BEAT", "WORKER", "NOTIFIER")
    for server in ("DATABASE", "BROKER")
}
WORKERS = ("worker-1", "worker-2")
OURS = ("migrate", "api", "executor", "sensor", "notifier", "beat", *WORKERS)


@pytest.fixture(scope="module")
def text() -> str:
    return (DEPLOY / "compose.yaml").read_text()


@pytest.fixture(scope="module")
def services(text: str) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


class TestCompose:
    def test_has_the_services(self, services):
        assert set(services) == {"postgres", "rabbitmq", "redis", *OURS}

    @pytest.mark.parametrize("name", SECRETS)
    def test_refuses_to_start_without_a_secret(self, text, name):
        uses = re.findall(rf"\$\{{{name}([^}}]*)\}}", text)
        assert uses
        assert all(use.startswith(":?") for use in uses), uses

    @pytest.mark.parametrize("name", WORKERS)
    def test_worker_has_more_time_to_stop_than_it_gives_its_actions(self, services, settings, name):
        grace = services[name]["stop_grace_period"]
        assert int(grace.removesuffix("s")) >= settings.MUSTER.shutdown_timeout_seconds + 15

    def test_each_worker_is_one_of_its_own(self, services):
        """Two processes of one name replace each other. Compose does not scale a service whose
        container has a name."""
        commands = [services[name]["command"] for name in WORKERS]
        names = [command[command.index("--name") + 1] for command in commands]
        containers = [services[name]["container_name"] for name in WORKERS]
        assert len(set(names)) == len(set(containers)) == len(WORKERS) >= 2

    def test_all_of_ours_get_the_settings_of_muster_and_nobody_else(self, services):
        file = [{"path": "muster.env", "required": False}]
        having = {name for name in services if services[name].get("env_file") == file}
        assert having == set(OURS)

    def test_settings_of_muster_come_from_their_file_but_for_those_with_passwords(self, services):
        """What `environment` names would count instead of the file."""
        named = {key for name in OURS for key in services[name]["environment"]}
        assert {key for key in named if key.startswith("MUSTER_")} == {"MUSTER_GATE_BROKERS"}

    def test_there_are_actions_to_run(self, services):
        steps = services["migrate"]["command"][-1].splitlines()
        assert steps[:2] == [
            "python manage.py migrate --no-input",
            "python manage.py pack install packs/core",
        ]

    def test_knows_no_password_of_its_own(self, text):
        text = re.sub(r"(?m)^ *#.*$", "", text)
        assert not re.findall(r"(?i)(?:password|key|pass): +(?!\$\{)\S+", text)
        assert not re.findall(r"(?i)\$\{\w*(PASSWORD|KEY|PASS)\w*:-", text)
        assert not re.findall(r"://\w+:(?!\$\{)[^@{}\s]+@", text)

    def test_only_the_api_has_the_secret_key(self, services):
        having = {name for name in services if "SECRET_KEY" in services[name]["environment"]}
        assert having == {"api"}

    def test_no_two_services_share_a_volume(self, services):
        volumes = [
            each.split(":")[0]
            for service in services.values()
            for each in service.get("volumes", ())
            if isinstance(each, str)
        ]
        assert len(volumes) == len(set(volumes))
        assert not any("volumes" in services[name] for name in OURS if name not in WORKERS)

    @pytest.mark.parametrize("name", OURS)
    def test_our_services_have_no_privileges(self, services, name):
        service = services[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("read_only", False) == (name not in WORKERS)
        assert "privileged" not in service

    def test_code_of_packs_may_be_executed_where_it_is_run_and_nowhere_else(self, services):
        executable = {
            name
            for name in OURS
            if any(
                place.startswith("/var/lib/muster:exec,")
                for place in services[name].get("tmpfs", ())
            )
        }
        # a worker has a volume, where Docker lets things be executed; `migrate` installs packs
        assert executable == {"sensor", "migrate"}
        for name in WORKERS:
            assert services[name]["volumes"] == [f"{name}:/var/lib/muster"]

    @pytest.mark.parametrize("name", ["api", "executor", "beat", *WORKERS, "notifier"])
    def test_each_kind_of_service_has_logins_of_its_own(self, services, name):
        kind = name.partition("-")[0].upper()
        environment = services[name]["environment"]
        owner = services["migrate"]["environment"]
        for what, scheme in (("DATABASE", "postgresql"), ("BROKER", "amqp")):
            url = environment[f"{what}_URL"]
            assert url.startswith(f"${{{kind}_{what}_URL:-{scheme}://muster_{kind.lower()}:")
            assert f"${{{kind}_{what}_PASSWORD:?" in url
            assert owner[f"{kind}_{what}_URL"] == url, "who makes the login knows it"
        assert not {"POSTGRES_PASSWORD", "RABBITMQ_PASSWORD"} & set(
            re.findall(r"\w+", str(environment))
        )

    def test_brokers_of_gates_reach_who_uses_them(self, services):
        having = {
            name
            for name in OURS
            if services[name]["environment"].get("MUSTER_GATE_BROKERS")
            == "${MUSTER_GATE_BROKERS:-}"
        }
        assert having == {"api", "executor"}

    @pytest.mark.parametrize("name", [name for name in OURS if name != "migrate"])
    def test_each_service_is_asked_whether_it_lives(self, services, name):
        assert {"test", "interval", "timeout", "retries"} <= services[name]["healthcheck"].keys()

    @pytest.mark.parametrize("name", ["executor", "sensor", "beat"])
    def test_the_probe_is_a_command_of_ours_that_asks_for_the_name_that_the_service_has(
        self, services, name
    ):
        command, probe = services[name]["command"], services[name]["healthcheck"]["test"]
        assert probe == ["CMD", *command, "--ping"]
        kind = command[-1]
        parser = load_command_class(get_commands()[kind], kind).create_parser("manage.py", kind)
        asked = parser.parse_args(["--ping"])
        assert asked.ping in (getattr(asked, "name", None), True)

    def test_everything_listens_on_this_host_alone(self, services):
        ports = [port for service in services.values() for port in service.get("ports", ())]
        assert ports
        assert all(port.startswith("127.0.0.1:") for port in ports)

    def test_images_may_be_named_by_digest(self, text, services):
        for name in ("postgres", "rabbitmq", "redis"):
            assert services[name]["image"].startswith(f"${{{name.upper()}_IMAGE:-")
        dockerfile = (DEPLOY / "Dockerfile").read_text()
        assert dockerfile.count("FROM ${PYTHON_IMAGE}") == 2
        assert "--require-hashes" in dockerfile

    def test_its_image_is_built_once(self, services):
        """Compose builds the image anew for each service that says how; one suffices for all."""
        assert {name for name in OURS if "build" in services[name]} == {"migrate"}
        assert {services[name]["image"] for name in OURS} == {"muster"}

    def test_redis_leaves_no_volume_behind(self, services):
        """Its image declares one at /data. With `tmpfs:` instead, it would be made all the same."""
        assert services["redis"]["volumes"] == [{"type": "tmpfs", "target": "/data"}]

    def test_redis_password_is_no_argument(self, services):
        redis = services["redis"]
        command = " ".join(redis["command"])
        assert "requirepass %s" in command
        assert "$$REDISCLI_AUTH" in command
        assert "REDIS_PASSWORD" not in command


class TestImage:
    @pytest.fixture
    def copied(self) -> set[str]:
        dockerfile = (DEPLOY / "Dockerfile").read_text()
        return set(re.findall(r"(?m)^COPY (\w+) \1$", dockerfile))

    def test_has_every_package_that_its_code_imports(self, copied):
        folders = {path.name for path in REPOSITORY.iterdir() if path.is_dir()}
        sources = [REPOSITORY / "manage.py"]
        sources += [path for name in copied for path in (REPOSITORY / name).rglob("*.py")]
        imported = {name for path in sources for name in _imported(path)} & folders
        assert {"muster_client", "orchestrator", "settings"} <= imported
        assert imported <= copied

    def test_is_built_from_all_that_is_copied(self, copied):
        lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
        files = {"manage.py", "requirements.txt", "requirements-otel.txt"}
        assert kept == copied | files
        assert all((REPOSITORY / name).exists() for name in kept)


def test_the_data_directory_in_memory_is_of_the_user_of_the_image(services: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "groupadd --system --gid 10001 muster " in dockerfile
    assert "useradd --system --uid 10001 --gid muster " in dockerfile
    places = [each for name in OURS for each in services[name].get("tmpfs", ()) if ":" in each]
    assert len(places) == len(OURS) - len(WORKERS)
    assert all(place.endswith("mode=0700,uid=10001,gid=10001") for place in places)


def test_commands_of_the_readme_run_with_the_rights_that_they_need() -> None:
    """Only the owner may read which migrations are applied, which some commands look at first."""
    told = re.findall(
        r"(?m)^docker compose [^#\n]* (run --rm|exec) (?:-v \S+ )?(\w+)(?: \\\n)? +"
        r"python manage.py (\w+)",
        (DEPLOY / "README.md").read_text(),
    )
    assert {command for _, _, command in told} == {"createsuperuser", "token", "access", "pack"}
    for how, service, name in told:
        command = load_command_class(get_commands()[name], name)
        assert service == "migrate" or not command.requires_migrations_checks, name
        # `run api` would run `migrate` again before it
        assert (service, how) in {("migrate", "run --rm"), ("api", "exec")}


def _imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_passwords_are_made_once_and_are_their_owners(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "make-env.sh", tmp_path)
    subprocess.run(["sh", str(tmp_path / "make-env.sh")], check=True, capture_output=True)
    made = (tmp_path / ".env").read_text()
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    values = dict(line.split("=") for line in made.splitlines())
    assert set(values) == {*SECRETS, *LOGINS}
    assert len(set(values.values())) == len(values)
    assert all(len(value) >= 32 and value.isalnum() for value in values.values())
    subprocess.run(["sh", str(tmp_path / "make-env.sh")], check=True, capture_output=True)
    assert (tmp_path / ".env").read_text() == made


@pytest.mark.parametrize(
    ("line", "is_moved"),
    [
        ("MUSTER_WORKER_QUEUE_TTL_MS=600000", True),
        ("export MUSTER_TLS=on", True),
        ("MUSTER_PORT=9000", False),
        ("MUSTER_GATE_BROKERS=orders=amqp://orders.internal//", False),
        ("# MUSTER_TLS=on", False),
    ],
)
def test_setting_that_no_service_would_see_is_no_line_of_the_passwords_file(
    tmp_path: Path, line: str, is_moved: bool
) -> None:
    for name in ("make-env.sh", "compose.yaml"):
        shutil.copy(DEPLOY / name, tmp_path)
    (tmp_path / ".env").write_text(f"{line}\n")
    done = subprocess.run(
        ["sh", str(tmp_path / "make-env.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == int(is_moved)
    assert ("deploy/muster.env" in done.stderr) == is_moved


@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")
def test_redis_takes_its_password_from_its_input(services: dict[str, Any], tmp_path: Path) -> None:
    port = free_port()
    script = services["redis"]["command"][2].replace("$$", "$")
    script = script.replace("redis-server -", f"redis-server - --port {port} --dir {tmp_path}")
    process = subprocess.Popen(
        ["sh", "-c", script],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "REDISCLI_AUTH": "made-up-1"},
        stdout=subprocess.DEVNULL,
    )
    try:
        patient = Retry(ConstantBackoff(0.1), 50)
        known = redis.Redis(port=port, password="made-up-1", retry=patient)
        assert known.ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port, retry=Retry(ConstantBackoff(0), 0)).ping()
    finally:
        process.kill()
        process.wait()


class TestUnits:
    def test_there_is_one_for_each_kind_of_service(self):
        names = [unit.name for unit in UNITS]
        assert names == [
            "muster-api.service", "muster-beat.service", "muster-executor.service",
            "muster-notifier.service", "muster-sensor.service", "muster-worker@.service",
        ]  # fmt: skip

    @pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
    def test_is_exposed_to_little(self, unit):
        if not shutil.which("systemd-analyze"):
            pytest.skip("systemd-analyze is not installed")
        analysed = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=40", "--no-pager",
             str(unit)],
            capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LANG": "C"},
        )  # fmt: skip
        assert analysed.returncode == 0, analysed.stdout + analysed.stderr
        (level,) = re.findall(r"exposure level for \S+: ([\d.]+)", analysed.stdout)
        assert float(level) <= 4.0

    def test_api_executor_and_worker_are_different_users_with_different_variables(self):
        users = {unit.name: _value(unit, "User") for unit in UNITS}
        files = {unit.name: _value(unit, "EnvironmentFile") for unit in UNITS}
        for values in (users, files):
            assert len(set(values.values())) >= 3
        assert users["muster-beat.service"] == users["muster-executor.service"]
        assert len(set(files.values())) == 5, "each has its own login"
        assert "root" not in users.values()

    @pytest.mark.parametrize("name", ["muster-worker@.service", "muster-sensor.service"])
    def test_code_of_packs_runs_as_a_user_of_which_no_other_service_is(self, name):
        users = {unit.name: _value(unit, "User") for unit in UNITS}
        mine = users.pop(name)
        assert mine not in users.values()
        created = re.findall(r"for name in (.+?); do useradd", (DEPLOY / "README.md").read_text())
        assert mine.removeprefix("muster-") in created[0].split()

    @pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
    def test_keeps_its_data_in_a_directory_of_its_own(self, unit):
        directory = _value(unit, "StateDirectory")
        assert f"MUSTER_DATA_DIR=%S/{directory}" in unit.read_text()
        others = [_value(other, "StateDirectory") for other in UNITS if other != unit]
        assert directory not in others


def test_ring_is_given_to_whoever_opens_keys_and_to_nobody_else() -> None:
    section = (DEPLOY / "README.md").read_text().partition("## Keys\n")[2]
    (in_containers,) = re.findall(r"```yaml\n(.+?)```", section, re.DOTALL)
    assert yaml.safe_load(in_containers)["services"].keys() == {"api", *WORKERS, "sensor"}
    units = set(re.findall(r"`(?:systemctl edit )?(muster-[\w@]+)`", section))
    assert units == {"muster-api", "muster-worker@", "muster-sensor"}


def _value(unit: Path, name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.+)$", unit.read_text(), re.MULTILINE)
    return str(value)
