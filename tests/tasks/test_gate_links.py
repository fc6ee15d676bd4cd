"""What a keeper hears: ends of executions, through a queue of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection

from orchestrator.core import publisher, topology
from tasks.gate_links import News, drain


@pytest.fixture
def link(channel: Any) -> Iterator[Connection]:
    topology.declare_exchanges(channel)
    with publisher.connection() as link:
        yield link


def tell(channel: Any, execution: object) -> None:
    body = json.dumps([[], {publisher.EXECUTION_IDS: [str(execution)]}, {}])
    message = channel.prepare_message(body)
    channel.basic_publish(
        message, exchange=topology.executions_exchange(), routing_key=topology.COMPLETED
    )


def test_news_has_one_queue_however_often_it_is_opened(link: Connection) -> None:
    news = News("keeper", link=link)
    news.open()
    first = (news.channel, news.queue)
    for _ in range(3):
        news.open()
    assert (news.channel, news.queue) == first


def test_news_is_heard_again_after_its_queue_was_deleted(link: Connection, channel: Any) -> None:
    news = News("keeper", link=link)
    news.open()
    tell(channel, early := uuid4())
    drain(link)
    assert news.taken() == {early}
    other: Any = link.channel()
    other.queue_delete(news.queue)
    drain(link)
    assert news.is_cancelled
    news.open()
    tell(channel, late := uuid4())
    drain(link)
    assert news.taken() == {late}
