"""Container actions: a command in an image, by podman or docker.

The command is the entry point; `image`, `network` (none by default), `pull` and `env` are options.
Parameters come as JSON on stdin, and as arguments if the entry point names them. The result is JSON
on the last line of stdout, unless the options say otherwise. The working directory is mounted at
`/work`, and the pack's folder, read only, at `/pack`.

Only the client of the engine runs under a keeper; the container itself is a child of the engine. So
it has a name derived from the attempt, and is removed by that name in any case: here, by a helper
if the worker dies, and at the next start.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.conf import settings

from orchestrator.core import isolation, packs, placeholders
from orchestrator.core.reasons import Reason
from workers import processes
from workers.runtimes import command, conclusions, kept
from workers.runtimes.command import Command
from workers.runtimes.conclusions import Ended
from workers.runtimes.protocol import Call, Outcome, failed

log = structlog.get_logger(__name__)

ENGINES = ("podman", "docker")
LABEL = "muster.worker"
PROBE_SECONDS = 5.0
REMOVE_SECONDS = 30.0
ENGINE_FAILED = 125
"""The exit code of podman and docker for their own errors, not those of the command."""
KILLED = 137
SHOWN_CHARACTERS = 2_000
WORK, PACK = "/work", "/pack"


def why_not() -> str:
    if reason := kept.why_not():
        return reason
    wanted = settings.MUSTER.container_engine
    present = [name for name in ([wanted] if wanted else ENGINES) if shutil.which(name)]
    if not present:
        return f"there is no program {wanted!r}" if wanted else "neither podman nor docker is here"
    reasons = {name: _answers(name) for name in present}
    if any(not reason for reason in reasons.values()):
        return ""
    return "; ".join(f"{name} does not answer: {reason}" for name, reason in reasons.items())


def run(call: Call) -> Outcome:
    engine = _engine()
    if engine is None:
        return failed(f"This worker runs no containers: {why_not()}.", by="worker")
    network = call.options.get("network", packs.NO_NETWORK)
    if not packs.may_join(network):
        return failed(
            f"MUSTER_CONTAINER_NETWORKS of this worker does not allow the network {network!r}.",
            reason=Reason.ADDRESS_REFUSED,
        )
    name = name_of(call)

    def concluding(call: Call, asked: Command, ended: Ended) -> Outcome:
        return _conclude(engine, name, call, asked, ended)

    with _removed(engine, name):
        return command.run(
            call, lambda work_dir: _prepare(engine, name, call, work_dir), concluding=concluding
        )


def remove_left(token: str) -> int:
    """Remove the containers of one life of a worker; returns how many. Called at the next start."""
    engine = _engine()
    response = _ask(engine, "ps", "-aq", "--filter", f"label={LABEL}={token}") if engine else None
    names = response.stdout.split() if response is not None and response.returncode == 0 else []
    if engine and names:
        _ask(engine, "rm", "--force", "--volumes", *names)
    return len(names)


def name_of(call: Call) -> str:
    """The container's name, unique to this attempt."""
    return f"muster-{call.execution_id}-{call.attempt}"


# --- the command line --------------------------------------------------------------------------


def _prepare(engine: str, name: str, call: Call, work_dir: str) -> Command:
    options = call.options
    worker = os.environ.get(processes.WORKER_TOKEN, "")
    variables = {
        "HOME": WORK,
        "MSTR_PACK_PATH": PACK,
        "MSTR_RESULT_FILE": f"{WORK}/{command.RESULT_FILE}",
        **options.get("env", {}),
        **processes.markers(call.execution_id, call.attempt, call.action_ref),
        processes.RETRIES: str(call.retries),
    }
    argv = [
        engine, "run", "--name", name, "--label", f"{LABEL}={worker}",
        "--interactive", "--init",
        "--pull", options.get("pull", "missing"),
        "--network", options.get("network", packs.NO_NETWORK),
        "--read-only", "--tmpfs", "/tmp",  # noqa: S108 - the container's own
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        *_user(engine),
        *_limited(call),
        "--volume", f"{work_dir}:{WORK}",
        "--volume", f"{Path(call.pack_path).resolve()}:{PACK}:ro",
        "--workdir", WORK,
    ]  # fmt: skip
    for variable, value in variables.items():
        argv += ["--env", f"{variable}={value}"]
    arguments = placeholders.expand(list(call.entry_point), call.parameters)
    return Command(
        [*argv, options["image"], *arguments],
        stdin=json.dumps(call.parameters).encode(),
        environment=_engine_environment(),
        result=options.get("result", "last_line"),
        limits={name: call.limits[name] for name in ("output_mb",) if name in call.limits},
        detached="kill",
        as_action_user=False,
        afterwards=[engine, "rm", "--force", "--volumes", name],
    )


def _user(engine: str) -> Iterator[str]:
    """Options for the user: the one of a command without a container, so that it has no more
    rights, and its files can be removed."""
    user = isolation.user()
    uid, gid = (user.pw_uid, user.pw_gid) if user else (os.getuid(), os.getgid())
    if Path(engine).name == "podman" and os.getuid() != 0:
        yield from ("--userns", "keep-id")
    elif uid != 0:
        yield from ("--user", f"{uid}:{gid}")


def _limited(call: Call) -> Iterator[str]:
    """Options for the limits, which the engine enforces for the container, not for its client."""
    limits = call.limits
    yield from ("--pids-limit", str(limits.get("processes", settings.MUSTER.action_processes)))
    memory = f"{limits.get('memory_mb', settings.MUSTER.action_memory_mb)}m"
    yield from ("--memory", memory, "--memory-swap", memory)
    if "cpus" in limits:
        yield from ("--cpus", f"{limits['cpus']:g}")
    if "file_size_mb" in limits:
        yield from ("--ulimit", f"fsize={limits['file_size_mb'] * kept.MIB}")
    if "open_files" in limits:
        yield from ("--ulimit", f"nofile={limits['open_files']}")


def _engine_environment() -> dict[str, str]:
    """The variables that the engine's client needs to find its engine and its images."""
    wanted = ("DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_RUNTIME_DIR", "HOME")
    return {name: os.environ[name] for name in wanted if name in os.environ}


# --- the end -----------------------------------------------------------------------------------


def _conclude(engine: str, name: str, call: Call, asked: Command, ended: Ended) -> Outcome:
    if ended.was_stopped or ended.exceeded:
        return conclusions.conclude(call, asked, ended)
    if ended.return_code == ENGINE_FAILED:
        message = "The container engine could not run it: " + ended.details["stderr"].strip()
        return failed(message[:SHOWN_CHARACTERS], by="worker", **ended.details)
    if ended.return_code == KILLED and _ran_out_of_memory(engine, name):
        most = call.limits.get("memory_mb", settings.MUSTER.action_memory_mb)
        return failed(
            f"The container used more memory than {most} MiB. That is its limit, `memory_mb`; it "
            "was ended there.",
            reason=Reason.MEMORY_LIMIT_EXCEEDED,
            **ended.details,
        )
    return conclusions.conclude(call, asked, ended)


def _ran_out_of_memory(engine: str, name: str) -> bool:
    response = _ask(engine, "inspect", "--format", "{{.State.OOMKilled}}", name)
    return response is not None and response.stdout.strip() == "true"


@contextlib.contextmanager
def _removed(engine: str, name: str) -> Iterator[None]:
    try:
        yield
    finally:
        response = _ask(engine, "rm", "--force", "--volumes", name)
        if response is None or (
            response.returncode != 0 and "no such container" not in response.stderr.lower()
        ):
            log.warning("container not removed", container=name)


# --- the engine --------------------------------------------------------------------------------


def _engine() -> str | None:
    wanted = settings.MUSTER.container_engine
    names = [wanted] if wanted else ENGINES
    return next((name for name in names if shutil.which(name) and not _answers(name)), None)


@functools.cache
def _answers(engine: str) -> str:
    """The reason why the engine behind this program does not answer; empty if it does."""
    format_ = "{{.Server.Version}}" if Path(engine).name == "docker" else "{{.Client.Version}}"
    response = _ask(engine, "version", "--format", format_, timeout_seconds=PROBE_SECONDS)
    if response is None:
        return "no answer in time"
    if response.returncode == 0:
        return ""
    lines = response.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {response.returncode}"


def _ask(
    engine: str, *arguments: str, timeout_seconds: float = REMOVE_SECONDS
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            [engine, *arguments], capture_output=True, text=True, timeout=timeout_seconds,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
