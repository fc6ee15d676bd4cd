"""Whether, and how soon, an attempt is followed by another."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.reasons import Known, Reason
from orchestrator.core.retry_policy import (
    BACKOFFS,
    LONGEST_DELAY_MS,
    NEVER,
    RETRYABLE,
    InvalidRetryPolicy,
    RetryPolicy,
)

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 20),
    backoff=st.sampled_from(BACKOFFS),
    backoff_base_ms=st.integers(1, 10_000),
    max_backoff_ms=st.integers(1, 100_000),
    jitter=st.floats(0, 1),
    retry_on=st.none() | st.frozensets(st.sampled_from(sorted(RETRYABLE))),
)
reasons = st.sampled_from(list(Reason))


def middle() -> float:
    return 0.5


@given(policy=policies, reason=reasons, idempotent=st.booleans())
def test_there_are_never_more_attempts_than_the_policy_says(policy, reason, idempotent):
    retry_count = 0
    while policy.allows(reason, retry_count=retry_count, idempotent=idempotent):
        retry_count += 1
    assert retry_count + 1 <= policy.max_attempts


@given(policy=policies, reason=reasons)
def test_an_unknown_outcome_is_never_repeated_unless_the_action_is_idempotent(policy, reason):
    if reason.known is Known.OUTCOME_UNKNOWN:
        assert not policy.allows(reason, retry_count=0, idempotent=False)


@given(policy=policies, reason=st.sampled_from(sorted(NEVER)), idempotent=st.booleans())
def test_success_and_cancellation_are_never_repeated(policy, reason, idempotent):
    assert not policy.allows(reason, retry_count=0, idempotent=idempotent)


@given(policy=policies, attempts=st.integers(-1, 10_000), seed=st.integers())
def test_a_delay_is_never_negative_nor_above_its_maximum(policy, attempts, seed):
    assert 0 <= policy.delay_ms(attempts, random=Random(seed)) <= policy.max_backoff_ms


@given(
    policy=policies,
    numbers=st.tuples(st.integers(1), st.integers(1)),
    attempts=st.integers(1, 10_000),
)
def test_a_delay_is_a_time_that_a_calendar_has_whatever_the_numbers(policy, numbers, attempts):
    base_ms, most_ms = (number * 10**400 for number in numbers)
    vast = replace(policy, backoff_base_ms=base_ms, max_backoff_ms=most_ms)
    assert 0 <= vast.delay_ms(attempts, random=Random(1)) <= LONGEST_DELAY_MS


@given(policy=policies, attempts=st.integers(1, 100))
def test_without_jitter_a_delay_never_gets_shorter(policy, attempts):
    assert policy.delay_ms(attempts, random=middle) <= policy.delay_ms(attempts + 1, random=middle)


@pytest.mark.parametrize(
    ("backoff", "delays_ms"),
    [
        ("none", [0, 0, 0, 0, 0, 0]),
        ("linear", [100, 200, 300, 400, 500, 600]),
        ("exponential", [100, 200, 400, 800, 1600, 2000]),
        ("fibonacci", [100, 100, 200, 300, 500, 800]),
    ],
)
def test_each_backoff_grows_by_its_formula_up_to_the_maximum(backoff, delays_ms):
    policy = RetryPolicy(backoff=backoff, backoff_base_ms=100, max_backoff_ms=2000)
    assert [policy.delay_ms(n, random=middle) for n in range(1, 7)] == delays_ms


def test_jitter_strays_by_its_part_of_the_delay_in_both_directions():
    policy = RetryPolicy(backoff_base_ms=1000, jitter=0.2)
    assert policy.delay_ms(1, random=lambda: 0.0) == 800
    assert policy.delay_ms(1, random=lambda: 1.0) == 1200


def test_without_retry_on_what_never_started_is_repeated_and_what_finished_is_not():
    policy = RetryPolicy(max_attempts=2)
    repeated = {r for r in Reason if policy.allows(r, retry_count=0, idempotent=False)}
    never_started = {r for r in Reason if r.known is Known.NEVER_STARTED}
    assert repeated == (never_started | {Reason.TRY_AGAIN}) - NEVER


@pytest.mark.parametrize("retry_on", [None, frozenset({Reason.WORKER_LOST}), frozenset()])
def test_action_that_asks_for_another_attempt_gets_it_while_one_is_left(retry_on):
    policy = RetryPolicy(max_attempts=2, retry_on=retry_on)
    assert policy.allows(Reason.TRY_AGAIN, retry_count=0, idempotent=False)
    assert not policy.allows(Reason.TRY_AGAIN, retry_count=1, idempotent=False)


def test_an_idempotent_action_is_repeated_after_an_unknown_outcome():
    policy = RetryPolicy(max_attempts=2)
    assert policy.allows(Reason.WORKER_LOST, retry_count=0, idempotent=True)


def test_a_failed_action_is_repeated_if_and_only_if_the_policy_lists_it():
    listed = RetryPolicy(max_attempts=2, retry_on=frozenset({Reason.ACTION_FAILED}))
    assert listed.allows(Reason.ACTION_FAILED, retry_count=0, idempotent=False)
    assert not listed.allows(Reason.RUN_TIMEOUT, retry_count=0, idempotent=False)
    assert not listed.allows(Reason.QUEUE_TTL_EXPIRED, retry_count=0, idempotent=False)


def test_an_empty_policy_is_one_attempt():
    policy = RetryPolicy.from_dict({})
    assert policy == RetryPolicy()
    assert not policy.allows(Reason.QUEUE_TTL_EXPIRED, retry_count=0, idempotent=True)


def test_reason_codes_become_reasons():
    policy = RetryPolicy.from_dict({"max_attempts": 3, "retry_on": ["action_failed"]})
    assert policy.retry_on == frozenset({Reason.ACTION_FAILED})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_attempt": 3}, "max_attempt: unknown key, did you mean 'max_attempts'?."),
        ({"max_attempts": 0}, "max_attempts: expected a whole number above 0, found 0."),
        ({"max_attempts": True}, "max_attempts: expected a whole number above 0, found true."),
        ({"jitter": 2}, "jitter: expected a number from 0 to 1, found 2."),
        ({"jitter": float("nan")}, "jitter: expected a number from 0 to 1, found nan."),
        ({"backoff_base_ms": -5}, "backoff_base_ms: expected a whole number above 0, found -5."),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected_and_found(values, message):
    with pytest.raises(InvalidRetryPolicy) as error:
        RetryPolicy.from_dict(values)
    assert str(error.value) == message


@pytest.mark.parametrize("reason", sorted(NEVER))
def test_a_reason_that_is_never_repeated_cannot_be_listed(reason):
    with pytest.raises(InvalidRetryPolicy, match="retry_on: expected a list of "):
        RetryPolicy.from_dict({"retry_on": [reason]})
