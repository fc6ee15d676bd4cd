"""Queue files: every problem at once with its line, CAF's names, and what a check would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.core.packs import source
from orchestrator.queues import caf, definitions
from orchestrator.queues.definitions import CAF_NAMES, GATE_DEFAULTS, QUEUE_DEFAULTS
from orchestrator.queues.management import reference


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    read = source.read(file)
    definitions.check_queue(read)
    return [str(each).removeprefix(str(tmp_path) + "/") for each in read.problems]


def of(values: Any) -> list[str]:
    file = definitions.source_of(values, name="orders")
    definitions.check_queue(file)
    return [each.message for each in file.problems]


GATE = {"input_queue": "orders-in"}


def test_reference_has_each_key_of_a_gate_and_of_its_classifiers() -> None:
    page = reference.gates_page()
    for key in definitions.GATE_KEYS.keys() - set(definitions.OF_THE_QUEUE):
        assert f"| `{key}` |" in page
    assert all(f"| `{key}` |" in page for key in definitions.CLASSIFIER_KEYS)
    assert all(f"`{name}` |" in page for name in CAF_NAMES)
    assert "`prefetch_buffer` |" not in page, "a gate has it as prefetchBuffer"
    assert reference.MEANINGS.keys() == definitions.GATE_KEYS.keys()


def test_every_problem_is_named_with_file_and_line(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "name: orders\nprioritty: 5\nmax_running: 0\n"
        "gate:\n  inputQueue: amq.x\n  maxPriority: 3\n",
    )
    assert found == [
        "orders.yaml:2:1: prioritty: unknown key, did you mean 'priority'?",
        "orders.yaml:3:14: max_running: expected a whole number from 1 to 1,000,000, found 0",
        "orders.yaml:5:15: gate.inputQueue: expected another name, as RabbitMQ reserves amq., "
        "found 'amq.x'",
        "orders.yaml:6:16: gate.maxPriority: expected 0, as quorum queues have no priorities, "
        "found 3",
    ]


@pytest.mark.parametrize(
    ("key", "bad", "expected"),
    [
        ("prefetch_buffer", -1, "from 0 to 100,000"),
        ("prefetch_buffer", 100_001, "from 0 to 100,000"),
        ("prefetch_buffer", True, "from 0 to 100,000"),
        ("retry_limit", 0, "from 1 to 1,000"),
        ("priority", 101, "from -100 to 100"),
        ("deadline_seconds", 0, "a number from 0.001"),
        ("defer_seconds", 0, "a number from 0.1"),
        ("health_check", "no path", "a dotted path"),
        ("action", "nothing", "an action, as pack.name"),
        ("accepts", "yes", "true or false"),
        ("gate", [], "a mapping"),
    ],
)
def test_value_out_of_its_range_is_refused_with_what_was_expected(
    key: str, bad: Any, expected: str
) -> None:
    [message] = of({key: bad})
    assert message.startswith(f"{key}: expected")
    assert expected in message


@pytest.mark.parametrize(
    ("key", "bad", "expected"),
    [
        ("input_queue", "", "1 to 255 bytes"),
        ("input_queue", "ä" * 128, "1 to 255 bytes"),
        ("input_queue", "muster.dlx.queue", "Muster's own"),
        ("input_queue", "worker.7.executions", "Muster's own"),
        ("rejected_queue", "orders-in", "another queue than the input and retry queues"),
        ("output_queue", "orders-in", "answers would come in again"),
        ("paused_queue", "orders-in", "another queue than the input and retry queues"),
        ("queue_type", "stream", "one of classic, quorum"),
        ("max_priority", 256, "from 0 to 255"),
        ("custody", "mine", "one of result, row"),
        ("retry_by", "nobody", "one of muster, queue"),
        ("divert", "forward", "forward_to"),
        ("forward_to", "x", "a list of patterns"),
        ("trusted_users", [""], "a list of AMQP users"),
        ("codec", "xml", "one of json, text, raw"),
        ("broker", "A b", "the alias of a broker"),
        ("classifiers", {"x": {"versions": [1]}}, "missing key"),
        ("classifiers", {"x": {"action": "a.b", "versions": ["1"]}}, "a list of whole numbers"),
        ("classifiers", {"x": {"action": "a.b", "vers": 1}}, "unknown key"),
    ],
)
def test_value_of_a_gate_out_of_its_range_is_refused(key: str, bad: Any, expected: str) -> None:
    found = of({"gate": GATE | {key: bad}})
    assert any(expected in message for message in found), found
    assert all(message.startswith("gate") for message in found)


def test_each_name_of_caf_does_what_our_own_does() -> None:
    own = {
        "prefetch_buffer": 7, "input_queue": "i", "retry_queue": "r", "rejected_queue": "x",
        "output_queue": "o", "paused_queue": "p", "retry_limit": 3, "max_priority": 9,
        "queue_type": "classic",
    }  # fmt: skip
    theirs = {caf_name: own[name] for caf_name, name in CAF_NAMES.items()}
    assert of({"gate": theirs}) == []
    new = definitions.new_queue({"gate": theirs}, name="orders")
    assert new.values["prefetch_buffer"] == 7
    assert new.values["retry_limit"] == 3
    assert new.gate is not None
    assert {name: new.gate[name] for name in own if name in new.gate} == {
        name: value for name, value in own.items() if name not in definitions.OF_THE_QUEUE
    }


@pytest.mark.parametrize(("theirs", "own"), CAF_NAMES.items())
def test_key_under_both_names_is_refused(theirs: str, own: str) -> None:
    value = 1 if own in ("prefetch_buffer", "retry_limit", "max_priority") else "classic"
    gate = GATE | {theirs: value}
    values = {own: value, "gate": gate} if own in definitions.OF_THE_QUEUE else {
        "gate": gate | {own: value}
    }  # fmt: skip
    assert any("given twice" in message for message in of(values))


def test_gate_needs_an_input_queue_and_lends_its_retry_limit() -> None:
    assert of({"gate": {}}) == [
        "gate.input_queue: missing key, expected 1 to 255 bytes",
    ]
    assert definitions.new_queue({}, name="a").values["retry_limit"] is None
    assert definitions.new_queue({"gate": GATE}, name="a").values["retry_limit"] == 10


def test_gate_diverts_nothing_until_it_knows_where_to() -> None:
    plain = definitions.new_queue({"gate": GATE}, name="a")
    knowing = definitions.new_queue({"gate": GATE | {"forward_to": ["next-*"]}}, name="a")
    assert plain.gate is not None
    assert knowing.gate is not None
    assert (plain.gate["divert"], knowing.gate["divert"]) == ("refuse", "forward")


def test_defer_pause_beyond_the_deadline_is_an_error() -> None:
    [message] = of({"deadline_seconds": 20, "defer_pause_seconds": 30})
    assert "expected less than deadline_seconds, 20" in message


def test_every_key_has_a_default_and_a_rule() -> None:
    named = {definitions.RENAMED.get(key, key) for key in definitions.QUEUE_KEYS} - {"gate"}
    assert named == set(QUEUE_DEFAULTS)
    of_gate = set(definitions.GATE_KEYS) - set(definitions.OF_THE_QUEUE)
    assert of_gate == {*GATE_DEFAULTS, "input_queue", "divert"}


# --- the environment of a CAF worker --------------------------------------------------------------

LANGDETECT = """\
# a worker
CAF_WORKER_BASE_QUEUE_NAME=worker-langdetect
CAF_WORKER_OUTPUT_QUEUE='worker-langdetect-out'
export CAF_RABBITMQ_PREFETCH_BUFFER="10"
CAF_WORKER_RETRY_LIMIT=3
CAF_RABBITMQ_MAX_PRIORITY=5
CAF_RABBITMQ_QUEUE_TYPE=classic
CAF_WORKER_PAUSED_QUEUE=worker-langdetect-paused
CAF_WORKER_ENABLE_DIVERTED_TASK_CHECKING=false
CAF_RABBITMQ_HOST=rabbitmq
CAF_LIVENESS_INITIAL_DELAY_SECONDS=15
JAVA_OPTS=-Xmx1g
"""


def test_environment_of_caf_becomes_a_queue_file_that_passes_the_check() -> None:
    imported = caf.import_environment(caf.read_environment(LANGDETECT))
    values = yaml.safe_load(imported.text)
    assert of({key: value for key, value in values.items() if key != "name"}) == []
    assert values == {
        "name": "worker-langdetect",
        "prefetch_buffer": 10,
        "retry_limit": 3,
        "gate": {
            "input_queue": "worker-langdetect-in",
            "rejected_queue": "worker-rejected",
            "output_queue": "worker-langdetect-out",
            "paused_queue": "worker-langdetect-paused",
            "queue_type": "classic",
            "max_priority": 5,
            "divert": "run",
        },
    }
    assert "idempotent" in imported.text
    ignored = dict(imported.ignored)
    assert set(ignored) == {
        "CAF_RABBITMQ_HOST", "CAF_LIVENESS_INITIAL_DELAY_SECONDS", "JAVA_OPTS",
    }  # fmt: skip
    assert "MUSTER_GATE_BROKERS" in ignored["CAF_RABBITMQ_HOST"]


def test_environment_without_names_is_that_of_cafs_defaults() -> None:
    values = yaml.safe_load(caf.import_environment({"CAF_RABBITMQ_HOST": "r"}).text)
    assert values["gate"]["input_queue"] == "worker-in"
    assert (values["prefetch_buffer"], values["retry_limit"]) == (1, 10)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("PATH=/bin\n", "found none"),
        ("CAF_WORKER_NAME=x\nno variable\n", "line 2"),
        ("CAF_WORKER_RETRY_LIMIT=many\n", "a whole number, found 'many'"),
    ],
)
def test_what_is_no_environment_of_caf_is_refused(text: str, why: str) -> None:
    with pytest.raises(caf.NotACafEnvironment, match=why):
        caf.import_environment(caf.read_environment(text))
