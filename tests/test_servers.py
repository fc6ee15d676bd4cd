"""The private servers do what fault tests rely on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import kombu
import psutil
import psycopg
import pytest
import redis

from tests import servers

ROOT = Path(__file__).parent.parent


def declare(channel, name="kept"):
    exchange = kombu.Exchange(f"{name}.exchange", type="topic", durable=True)
    queue = kombu.Queue(name, exchange=exchange, routing_key="#", durable=True)
    return queue(channel)


def test_shared_servers_answer(postgres_url, rabbitmq_url, redis_url):
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    with kombu.Connection(rabbitmq_url) as broker:
        assert broker.connect().connected
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_durable_queue_and_its_messages_survive_stop_and_kill(start_server):
    rabbit = start_server(servers.RabbitServer)
    url = rabbit.url
    with kombu.Connection(url) as broker:
        queue = declare(broker.default_channel)
        queue.declare()
        producer = broker.Producer()
        for number in (1, 2):
            producer.publish({"number": number}, exchange=queue.exchange, delivery_mode=2)

    rabbit.stop()
    assert not rabbit.is_running
    rabbit.start()
    rabbit.kill()
    rabbit.start()

    assert rabbit.url == url
    with kombu.Connection(url) as broker:
        queue = declare(broker.default_channel)
        for number in (1, 2):
            message = queue.get()
            assert message is not None
            assert message.payload == {"number": number}
            message.ack()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_brokers_run_side_by_side_and_do_not_see_each_other(shared_rabbit, start_server):
    one, other = shared_rabbit, start_server(servers.RabbitServer)
    with kombu.Connection(one.url) as broker:
        declare(broker.default_channel, "mine").declare()
    assert "mine" in one.control("list_queues", "name").split()
    assert other.control("list_queues", "name").split() in ([], ["name"])
    assert other.control("eval", "nodes().").strip() == "[]"


def test_committed_row_survives_kill_of_postgres(start_server):
    postgres = start_server(servers.PostgresServer, durable=True)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        assert connection.execute("show fsync").fetchone() == ("on",)
        connection.execute("create table kept (number integer)")
        connection.execute("insert into kept values (7)")
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    postgres.start()
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("select number from kept").fetchall() == [(7,)]


def test_paused_server_accepts_connections_but_does_not_answer_until_resumed(start_server):
    server = start_server(servers.RedisServer)
    with redis.Redis.from_url(server.url, socket_timeout=2, retry=None) as client:
        client.set("kept", "yes")
        server.pause()
        assert servers.is_listening(server.port)
        with pytest.raises(redis.exceptions.TimeoutError):
            client.get("kept")
        server.resume()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"


def test_servers_and_their_data_do_not_outlive_a_killed_test_run():
    script = """
from tests import servers
postgres = servers.PostgresServer()
postgres.start()
postgres.pause()
print(postgres.pid, postgres.directory, flush=True)
input()
"""
    try:
        servers.find("initdb", servers.POSTGRES_DIRECTORIES)
    except servers.MissingBinary as missing:
        pytest.skip(str(missing))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid, directory = run.stdout.readline().split()
        processes = psutil.Process(int(pid)).children(recursive=True)
        assert processes
        run.send_signal(signal.SIGKILL)
        run.wait()
    servers.wait_until(lambda: not any(map(servers.is_alive, processes)), "postgres outlives us")
    servers.wait_until(lambda: not Path(directory).exists(), "its data outlives us")


def test_missing_binary_is_named_with_what_to_do():
    with pytest.raises(servers.MissingBinary, match=r"no-such-server is not installed .+deploy/"):
        servers.find("no-such-server")


def test_clock_of_a_database_is_stepped_both_ways_while_it_runs(start_server):
    postgres = start_server(servers.PostgresServer, has_own_clock=True)
    ask = "SELECT extract(epoch FROM clock_timestamp())::float8"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for offset_seconds in (0, 600, -600, 0):
            postgres.step_clock(offset_seconds)
            told = connection.execute(ask).fetchone()
            assert told is not None
            assert abs(told[0] - time.time() - offset_seconds) < 10
        began = time.monotonic()
        connection.execute("SELECT pg_sleep(0.2)")  # what counts seconds is as it should be
        assert 0.2 <= time.monotonic() - began < 10


@pytest.mark.skipif(not servers.can_mount(), reason="needs to be root on Linux, and to mount")
def test_full_disk_of_a_database_refuses_writes_until_it_is_freed(start_server):
    postgres = start_server(servers.PostgresServer, disk_mb=200)
    write = "INSERT INTO full_soon SELECT repeat('x', 1000) FROM generate_series(1, 2000)"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE full_soon (text text)")
        postgres.fill_disk()
        with pytest.raises(psycopg.OperationalError):
            connection.execute(write)
    postgres.free_disk()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(write)
        assert connection.execute("SELECT count(*) FROM full_soon").fetchone() == (2000,)
    postgres.close()
    assert not postgres.directory.exists()
