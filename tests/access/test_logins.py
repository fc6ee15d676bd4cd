"""Who fails to log in waits, longer each time, whichever name and address he uses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from orchestrator.access import logins
from orchestrator.access.models import LoginRecord
from orchestrator.core import clock
from tests.factories import NOW

PASSWORD = "right-horse-battery"

SECOND = timedelta(seconds=1)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The database's clock stands still; the test moves it on by seconds."""
    at = [NOW]
    monkeypatch.setattr(clock, "now", lambda: at[0])

    def move(seconds: float) -> None:
        at[0] += timedelta(seconds=seconds)

    return move


def attempt(name: str, password: str, address: str = "192.0.2.1") -> str:
    """What the login page says: `in`, `wrong`, or how long to wait."""
    client = Client(REMOTE_ADDR=address)
    response = client.post(reverse("admin:login"), {"username": name, "password": password})
    if response.status_code == 302:
        return "in"
    text = response.content.decode()
    if "Too many failed logins" in text:
        return text.partition("looked at in ")[2].partition(".")[0]
    assert "Please enter the correct username and password" in text
    return "wrong"


@pytest.mark.django_db
class TestLoginPage:
    @pytest.fixture(autouse=True)
    def owner(self, db: None, settings: Any) -> User:
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        return User.objects.create_superuser("olga", password=PASSWORD)

    def test_five_failures_are_free_then_each_doubles_the_wait(self, time):
        assert [attempt("olga", "wrong") for _ in range(5)] == ["wrong"] * 5
        for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300):
            assert attempt("olga", PASSWORD) not in ("in", "wrong")
            time(seconds - 0.1)
            assert attempt("olga", PASSWORD) not in ("in", "wrong")
            time(0.1)
            assert attempt("olga", "wrong") == "wrong"

    def test_right_password_before_its_time_is_not_looked_at(self, time, monkeypatch):
        for _ in range(5):
            attempt("olga", "wrong")
        monkeypatch.setattr(User, "check_password", lambda *_: pytest.fail("it was hashed"))
        assert attempt("olga", PASSWORD) == "2 s"

    def test_name_is_braked_over_many_addresses(self, time):
        for number in range(5):
            attempt("olga", "wrong", f"192.0.2.{number}")
        assert attempt("olga", PASSWORD, "198.51.100.9") not in ("in", "wrong")

    def test_unknown_name_is_braked_like_a_known_one(self, time):
        assert [attempt("nobody", "x") for _ in range(5)] == ["wrong"] * 5
        assert attempt("nobody", "x") == "2 s"

    def test_unknown_name_costs_one_hash_like_a_wrong_password(self, time, monkeypatch):
        hashed: list[str] = []
        encode = MD5PasswordHasher.encode

        def note_and_encode(hasher: Any, password: str, *args: Any) -> str:
            hashed.append(password)
            return encode(hasher, password, *args)

        monkeypatch.setattr(MD5PasswordHasher, "encode", note_and_encode)
        attempt("olga", "wrong-1")
        attempt("nobody", "wrong-2")
        assert hashed == ["wrong-1", "wrong-2"]

    def test_name_is_the_same_in_capitals_and_in_wide_letters(self, time):
        for name in ("olga", "OLGA", "Olga", "\uff4flga", "olgA"):
            attempt(name, "wrong", f"192.0.2.{len(name)}{ord(name[0]) % 9}")
        assert LoginRecord.objects.get(kind="name").failures == 5

    def test_address_is_braked_over_many_names(self, time):
        for number in range(5):
            attempt(f"user{number}", "wrong")
        assert attempt("olga", PASSWORD) not in ("in", "wrong")
        assert attempt("olga", PASSWORD, "198.51.100.9") == "in"

    def test_network_of_a_customer_counts_as_one_address(self, time):
        for number in range(5):
            attempt(f"user{number}", "wrong", f"2001:db8:1:2::{number}")
        assert attempt("olga", PASSWORD, "2001:db8:1:2:ffff::1") not in ("in", "wrong")
        assert attempt("olga", PASSWORD, "2001:db8:1:3::1") == "in"

    def test_own_login_between_guesses_does_not_clear_the_address(self, time):
        User.objects.create_superuser("mallory", password=PASSWORD)
        for _ in range(5):
            assert attempt("mallory", PASSWORD) == "in"
            attempt("olga", "wrong", "192.0.2.1")
        assert attempt("mallory", PASSWORD) not in ("in", "wrong")

    def test_stranger_who_fails_again_and_again_does_not_keep_the_owner_out(self, time):
        assert attempt("olga", PASSWORD, "203.0.113.5") == "in"
        for number in range(30):
            attempt("olga", "wrong", f"192.0.2.{number}")
            time(400)
        assert attempt("olga", "wrong", "192.0.2.99") == "wrong"
        assert attempt("olga", PASSWORD, "198.51.100.9") not in ("in", "wrong")
        assert attempt("olga", PASSWORD, "203.0.113.5") == "in"

    def test_failures_are_forgotten_after_an_hour(self, time):
        for _ in range(6):
            attempt("olga", "wrong")
        time(3_700)
        attempt("someone", "wrong", "198.51.100.1")
        assert not LoginRecord.objects.filter(key="olga").exists()
        assert attempt("olga", "wrong") == "wrong"
        assert LoginRecord.objects.get(key="olga").failures == 1

    def test_good_login_clears_the_name(self, time):
        for _ in range(4):
            attempt("olga", "wrong")
        assert attempt("olga", PASSWORD) == "in"
        assert not LoginRecord.objects.filter(kind="name").exists()

    def test_failure_is_logged_with_name_and_address_and_no_password(self, time, caplog):
        with caplog.at_level(logging.INFO):
            attempt("olga", "Hunter-2-canary", "192.0.2.77")
        assert "192.0.2.77" in caplog.text
        assert "olga" in caplog.text
        assert "canary" not in caplog.text

    @pytest.mark.parametrize("name", ["a\0b", "x" * 5_000, "\ud800", "\x1b[31m"])
    def test_name_that_no_database_holds_is_an_unknown_one(self, time, name):
        client = Client(REMOTE_ADDR="192.0.2.1")
        form = urlencode({"username": name.encode("utf-8", "surrogatepass"), "password": "x"})
        response = client.post(
            reverse("admin:login"), form, content_type="application/x-www-form-urlencoded"
        )
        assert response.status_code == 200


def test_many_attempts_at_once_are_no_more_than_one_by_one(database: str) -> None:
    """On SQLite and on PostgreSQL."""
    now = clock.now()
    allowed: list[int] = []

    def try_once() -> None:
        try:
            allowed.append(logins.begin("olga", "192.0.2.1", now=now))
        finally:
            connection.close()

    assert logins.begin("olga", "192.0.2.1", now=now) == 0
    threads = [threading.Thread(target=try_once) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(allowed) == 16
    assert allowed.count(0) == 4


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (4, 0), (5, 1), (6, 2), (7, 4), (13, 256), (14, 300), (10_000, 300)],
)
def test_waits(failures: int, seconds: int) -> None:
    assert logins.wait_after(failures) == seconds * SECOND
