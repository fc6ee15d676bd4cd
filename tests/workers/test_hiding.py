"""Secrets of an execution in what its process writes: output, errors, logs, texts that are cut."""

from __future__ import annotations

import io
import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from orchestrator.core import executions
from orchestrator.core.masking import Masker
from orchestrator.core.reasons import Reason
from tests.waiting import wait_until
from tests.workers.helpers import SAMPLE, call, python, sh
from workers import child, hiding, runtimes
from workers.attempts import Attempt
from workers.desk import Desk
from workers.runtimes import Outcome
from workers.runtimes.capture import Capture

VALUE = "sk_live_0123456789"
SECRETS = (VALUE,)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert hiding._active == {}


def begun(*values: str) -> Masker:
    """The masker of these values, which are masked from now on."""
    masker = hiding.masker_of(values)
    hiding.begin(masker)
    return masker


def run(asked: Any) -> Outcome:
    return child.run(asked)


# --- commands ------------------------------------------------------------------------------------


def test_output_of_a_command_is_masked() -> None:
    script = 'cat; echo; printf "%s" "$1" | base64 >&2; exit 3'
    asked = call("shell", ["sh", "-c", script, "sh", "{token}"], parameters={"token": VALUE},
                 secrets=SECRETS)  # fmt: skip
    result = run(asked).result
    assert result["stdout"] == '{"token": "***"}\n'
    assert "***" in result["stderr"]
    assert VALUE not in str(result)


def test_value_of_many_kilobytes_is_masked_in_the_output_of_a_command() -> None:
    """A pattern of it would be refused."""
    value = "".join(random.Random(5).choices('\u00e4\u00f6\u6f22/+"', k=60_000))
    asked = call("shell", ["cat"], parameters={"token": value}, secrets=(value,),
                 output_limit_bytes=1_000_000)  # fmt: skip
    assert run(asked).result["stdout"].replace("***", "") == '{"token": ""}'


def test_value_that_comes_in_two_chunks_is_masked() -> None:
    script = f"printf before-sk_live_; sleep 0.3; printf '{VALUE[8:]}-after'"
    assert run(sh(script, secrets=SECRETS)).result["stdout"] == "before-***-after"


def test_value_at_the_limit_of_the_output_is_not_cut_in_two() -> None:
    for kept in range(90, 130):
        asked = sh(f"printf '%0100d{VALUE}end' 0", secrets=SECRETS, output_limit_bytes=kept)
        result = run(asked).result
        assert result["stdout"] == ("0" * 100 + "***end")[:kept]
        assert result["stdout_truncated"] is (kept < 106)
        if kept == 92:
            break  # each is a process: the rest is asked of the capture itself
    for kept in range(100, 125):
        assert (
            captured(b"0" * 100 + VALUE.encode() + b"end", keep=kept, chunk=7)
            == (b"0" * 100 + b"***end")[:kept]
        )


def captured(content: bytes, *, keep: int, chunk: int) -> bytes:
    with hiding.of(SECRETS):
        capture = Capture(keep, 10_000)
    for at in range(0, len(content), chunk):
        reader, writer = os.pipe()
        os.write(writer, content[at : at + chunk])
        os.close(writer)
        capture.read(reader)
        os.close(reader)
    capture.end()
    return bytes(capture.kept)


def test_result_of_a_command_keeps_its_value_for_the_parent_to_mask() -> None:
    """The last line is read as JSON first: masking the text of it might break it."""
    script = f'echo \'{{"token": "{VALUE}", "n": 1}}\''
    asked = sh(script, secrets=SECRETS, options={"result": "last_line"})
    assert run(asked).result["result"] == {"token": VALUE, "n": 1}


def test_line_that_is_no_json_is_masked_before_it_is_cut() -> None:
    script = f"printf '%0190d{VALUE}' 0"
    outcome = run(sh(script, secrets=SECRETS, options={"result": "last_line"}))
    assert "sk_live" not in str(outcome.result)


# --- python --------------------------------------------------------------------------------------


def test_exception_is_masked_before_it_is_cut() -> None:
    text = "x" * 1_990 + VALUE
    outcome = run(python("fail_with", parameters={"text": text}, secrets=SECRETS))
    assert outcome.reason == Reason.ACTION_FAILED
    assert "sk_live" not in str(outcome.result)


def test_exception_in_a_process_of_its_own_is_masked_before_it_is_cut(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "actions.py").write_text("def f(*, text):\n    raise ValueError(text)\n")
    asked = call(
        "python",
        "own.actions:f",
        pack_path=str(tmp_path / "own"),
        parameters={"text": "x" * 1_990 + VALUE},
        options={"process": True},
        secrets=SECRETS,
    )
    outcome = run(asked)
    assert outcome.result["exception"] == "ValueError"
    assert outcome.result["message"].startswith("ValueError: xxx")
    assert "sk_live" not in str(outcome.result)


def guarded(monkeypatch: pytest.MonkeyPatch) -> dict[str, io.StringIO]:
    """What comes out of this process from here on; between fixtures pytest changes it."""
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(hiding, "_outputs", [])
    hiding.guard()
    return streams


@pytest.mark.parametrize("where", ["main thread", "pool thread"])
def test_what_an_action_prints_into_the_workers_log_is_masked(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    printed = guarded(monkeypatch)
    texts = ["one ", VALUE[:9], VALUE[9:], " two\n", "half of it: ", VALUE[:9]]
    asked = python("say", parameters={"texts": texts}, secrets=SECRETS, isolation="trusted")
    if where == "main thread":
        run(asked)
    else:
        thread = threading.Thread(target=run, args=[asked])
        thread.start()
        thread.join()
    for stream in printed.values():
        assert stream.getvalue() == f"one *** two\nhalf of it: {VALUE[:9]}"


def test_what_an_action_prints_in_its_own_process_is_masked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts = ["one ", VALUE[:9], VALUE[9:], " two\n", "half of it: ", VALUE[:9]]
    with caplog.at_level("INFO"):
        run(python("say", parameters={"texts": texts}, secrets=SECRETS))
    assert VALUE[9:] not in caplog.text
    assert caplog.text.count("***") == 2, "once in the output, once among the errors"
    assert caplog.text.count(f"half of it: {VALUE[:9]}") == 2


def test_output_of_several_executions_is_masked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = guarded(monkeypatch)
    one, two = begun(*SECRETS), begun("other-secret")
    sys.stdout.write(f"{VALUE} other-")
    hiding.end(one)
    sys.stdout.write("secret ")
    hiding.end(two)
    sys.stdout.write(VALUE)
    assert printed["stdout"].getvalue() == f"*** *** {VALUE}"


def test_output_without_secrets_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = guarded(monkeypatch)
    sys.stdout.write("half a li")
    assert printed["stdout"].getvalue() == "half a li"


def test_output_that_nothing_can_be_written_to_is_no_error_of_the_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = guarded(monkeypatch)
    one = begun(*SECRETS)
    sys.stdout.write(f"half of it: {VALUE[:9]}")
    printed["stdout"].close()
    hiding.end(one)


# --- logs ----------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the root's handler writes, guarded."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    hiding.guard()
    hiding.guard()  # twice is once
    yield written
    root.removeHandler(handler)


def test_log_line_is_masked_with_fields_and_traceback(log: io.StringIO) -> None:
    with hiding.of(SECRETS):
        try:
            raise ValueError(f"no {VALUE}")
        except ValueError:
            logging.getLogger("a").exception("failed %s", {"token": VALUE})
        structlog.get_logger("b").warning("again", token=VALUE, form=VALUE.encode().hex())
    logging.getLogger("a").warning("afterwards %s", "fine")
    text = log.getvalue()
    assert "ValueError: no ***" in text
    assert "{'token': '***'}" in text
    assert VALUE not in text
    assert VALUE.encode().hex() not in text
    assert "afterwards fine" in text


def test_two_executions_in_hand_are_both_masked(log: io.StringIO) -> None:
    one, two = begun(*SECRETS), begun("other-secret")
    logging.getLogger("a").warning("%s %s", VALUE, "other-secret")
    hiding.end(one)
    logging.getLogger("a").warning("%s", "other-secret")
    hiding.end(two)
    hiding.end(two)
    assert log.getvalue() == "WARNING *** ***\nWARNING ***\n"


def test_child_forgets_what_its_parent_had_in_hand(log: io.StringIO) -> None:
    begun(*SECRETS)
    hiding.forget_all()
    logging.getLogger("a").warning(VALUE)
    assert log.getvalue() == f"WARNING {VALUE}\n"


def test_what_an_execution_says_is_masked_with_its_own_secrets_alone() -> None:
    """Masked with its neighbour's too, it could try which values come back as stars."""
    guess = ["guess 41", "guess 42"]
    neighbour = begun("guess 42")
    try:
        asked = sh(f"echo {guess[0]}; echo {guess[1]}; echo {VALUE}", secrets=SECRETS)
        assert child.run(asked).result["stdout"].split("\n")[:3] == [*guess, "***"]
    finally:
        hiding.end(neighbour)


def test_thread_of_the_parent_masks_with_what_the_claim_has_made(
    monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    """To make it once more would take up to a tenth of a second."""
    made = begun(*SECRETS)
    monkeypatch.setattr(hiding, "masker_of", lambda _: 1 / 0)
    assert run(sh(f"echo {VALUE}", secrets=SECRETS)).result["stdout"] == "***\n"
    logging.getLogger("a").warning("its end is being recorded: %s", VALUE)
    hiding.end(made)
    assert log.getvalue().splitlines()[-1].endswith("its end is being recorded: ***")


# --- the parent ----------------------------------------------------------------------------------


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An attempt that was claimed with these contents; `put` has what is recorded of it."""
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: 0)
    put: list[executions.Ended] = []
    agent: Any = SimpleNamespace(
        finisher=SimpleNamespace(put=put.append),
        loop=SimpleNamespace(wake=lambda: None),
        code=SimpleNamespace(),
    )
    attempt: Any = Attempt.__new__(Attempt)
    attempt.execution_id, attempt.number, attempt.time_start = "id", 1, 1.0
    attempt.execution = SimpleNamespace(pk="id", attempt=1)
    attempt.send_event = lambda *_, **__: None
    attempt.desk, attempt.put = Desk(agent), put
    attempt.masker = begun(*SECRETS)
    return attempt


def test_result_is_masked_before_it_is_recorded(attempt: Any) -> None:
    attempt.on_outcome(runtimes.completed({"echo": [VALUE, {VALUE: 1}], "n": 7}))
    (ended,) = attempt.put
    assert ended.result == {"echo": ["***", {"***": 1}], "n": 7}


def test_error_of_the_pool_is_masked_before_it_is_recorded(attempt: Any) -> None:
    try:
        raise ValueError(f"cannot pickle {VALUE}")
    except ValueError as error:
        attempt.on_lost(SimpleNamespace(exception=error))
    wait_until(lambda: attempt.put)
    (ended,) = attempt.put
    assert "cannot pickle ***" in ended.result["message"]


def test_contents_and_calls_show_no_value() -> None:
    contents = executions.Contents({"token": VALUE}, SECRETS)
    asked = call("shell", ["true"], parameters={"token": VALUE}, secrets=SECRETS)
    assert VALUE not in repr((contents, asked))
    assert SAMPLE in repr(python("give"))
