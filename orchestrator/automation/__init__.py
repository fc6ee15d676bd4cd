"""Automation: from an event, by the rules that match it, to executions.

recording.record_many([NewEvent(trigger, payload, key="order 7", source="api")], now=now)
matching.match(event_ids, now=now, actor="executor")          # one enforcement for each rule
enforcing.enforce(enforcement_ids, now=now, actor="executor")  # one execution, or a reason
"""
