"""Queues of the broker: why the messages that it has are not as many as the rows that wait."""

from __future__ import annotations

from orchestrator.core.queue_depths import Depth
from orchestrator.core.queue_flow import Flow

MISSING = "The broker has no such queue. Whoever takes from it makes it at its start."


def difference(flow: Flow | None, depth: Depth, *, is_of_worker: bool) -> str:
    """The reason why rows and messages differ, or nobody takes them; empty if there is nothing to
    say."""
    waiting = flow.waiting if flow else None
    if waiting is None:
        return "" if depth.consumers or not depth.ready else "Nobody takes them."
    return _of_worker(waiting, depth) if is_of_worker else _of_requests(waiting, depth)


def _of_worker(waiting: int, depth: Depth) -> str:
    ready, consumers = depth
    if ready > waiting:
        return "Some messages were sent again, or are about executions that went on: it drops them."
    if not waiting:
        return ""
    if not consumers:
        return _nobody(waiting, ready)
    if ready < waiting:
        return "It has fetched the other messages, or one message names several executions."
    return ""


def _nobody(waiting: int, ready: int) -> str:
    if not ready:
        return "Nobody takes them, and no message is left: an executor sends or ends them."
    several = "" if ready == waiting else " One message may name several executions."
    return f"Nobody takes them: the worker is away.{several}"


def _of_requests(waiting: int, depth: Depth) -> str:
    ready, consumers = depth
    if ready and not consumers:
        return "Nobody takes them: no executor is connected."
    if ready > waiting:
        return "Some messages are about executions that went on already: executors drop them."
    if ready < waiting:
        return "Executors have fetched the others, or find them without a message."
    return ""
