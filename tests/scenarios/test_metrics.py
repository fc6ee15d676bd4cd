"""The numbers of an installation, as Prometheus reads them from an API process."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.scenarios.installation import Installation


def test_any_api_process_tells_what_workers_and_executors_did(shared: Installation) -> None:
    url = shared.serve()
    shared.ready()
    headers = {"Authorization": f"Bearer {shared.token('prometheus', 'viewer')}"}
    shared.wait_for_ends([shared.submit("core.echo", {"n": n}) for n in range(5)])

    def scraped() -> dict[str, float]:
        answer = httpx.get(f"{url}/metrics", headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return {
            f"{sample.name}{dict(sorted(sample.labels.items()))}": sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    ended = "muster_executions_ended_total{'reason': 'succeeded', 'status': 'completed'}"
    shared.wait_for(lambda: scraped()[ended] >= 5, "ends are not counted")
    numbers = scraped()
    assert numbers[ended] == 5
    claimed = "muster_execution_scheduling_seconds_count{'stage': 'requested_to_running'}"
    assert numbers[claimed] == 5
    # asked by the API's own login
    assert numbers["muster_broker_up{}"] == 1
    assert numbers["muster_dlq_depth{}"] == 0
    queues = {name for name in numbers if name.startswith("muster_queue_consumers")}
    assert len(queues) == 10
    assert numbers["muster_workers_eligible{}"] == 2
