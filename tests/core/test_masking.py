"""Values that are known to be secret are found in every form, and nothing else is."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator.core.masking import (
    LEAST_CHARACTERS,
    LONGEST_PIECE,
    MASK,
    PATTERN_BYTES,
    Masker,
    worth_masking,
)

VALUE = 'sk_live_7f3K/a+b="c\\d'
PEM = (
    "-----BEGIN KEY-----\n" + "\n".join(f"{n:02}abcdefghijklmnopqrstuvwx" for n in range(40)) + "\n"
)

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda value: json.dumps(value)[1:-1],
    "json in json": lambda value: json.dumps(json.dumps(value))[3:-3],
    "json with escaped slashes": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "repr": lambda value: repr(value)[1:-1],
    "url": lambda value: quote(value, safe=""),
    "url with slashes": quote,
    "form": quote_plus,
    "url in lower case": lambda value: quote(value, safe="").replace("%2F", "%2f"),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
}
VALUES = [
    VALUE,
    "p\u00e4ssw\u00f6rd \U0001f511 two",
    "0123456789",
    "line one\nline two\ttab",
    "a" * 600,
]


def assert_is_masked(text: str, *, of: str) -> None:
    masked = Masker([of]).text(f"<{text}>")
    assert masked.strip("<>*") == "", masked
    assert MASK in masked


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
def test_value_is_found_in_this_form(value: str, form: str) -> None:
    assert_is_masked(FORMS[form](value), of=value)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("value", [*VALUES, "?>?>?>?>"])
def test_value_is_found_in_base64_wherever_it_begins(
    value: str, before: int, after: int, encode: Callable[[bytes], bytes]
) -> None:
    content = b"x" * before + value.encode() + b"y" * after
    masked = Masker([value]).text(encode(content).decode())
    # what is left tells of the neighbours, and a few bits of the value's ends
    left = masked.replace(MASK, "").replace("\n", "").rstrip("=")
    ends = 2 + len(value) // LONGEST_PIECE
    assert len(left) <= (before * 8 + 5) // 6 + (after * 8 + 5) // 6 + ends, masked
    assert MASK in masked


def test_lines_of_a_value_are_found_by_themselves() -> None:
    indented = "\n".join(f"    {line}" for line in PEM.splitlines())
    masked = Masker([PEM]).text(indented)
    assert "abcdef" not in masked
    assert "BEGIN KEY" in masked


def test_longer_of_two_values_is_masked_whole() -> None:
    masker = Masker(["secret-one", "secret-one-and-more"])
    assert masker.text("secret-one-and-more, secret-one") == "***, ***"


def test_short_value_is_not_looked_for() -> None:
    short = "x" * (LEAST_CHARACTERS - 1)
    assert not Masker([short, "", " " * 20])
    assert Masker([short]).text(f"a {short} b") == f"a {short} b"
    assert Masker([f"{short}y"]).text(f"a {short}y b") == "a *** b"


def test_json_value_is_masked_with_its_names_and_numbers() -> None:
    masker = Masker(["hunter22", "4711471147"])
    value = {
        "hunter22": [1, None, True, "x hunter22 y", {"n": 4711471147, "f": 1.5}],
        "fine": "nothing",
    }
    before = json.dumps(value)
    assert masker.value(value) == {
        "***": [1, None, True, "x *** y", {"n": "***", "f": 1.5}],
        "fine": "nothing",
    }
    assert json.dumps(value) == before


def test_value_without_a_secret_is_returned_as_it_is() -> None:
    value = {"a": [1, {"b": "hunter2"}]}
    assert Masker(["hunter22"]).value(value) is value


def test_texts_of_a_json_value_do_not_run_together() -> None:
    value = ["hunt", "er22", "a\0b", "hunter22"]
    assert Masker(["hunter22"]).value(value) == ["hunt", "er22", "a\0b", "***"]


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_json_value_is_masked_however_deeply_it_is_nested(depth: int) -> None:
    deep: Any = "hunter22"
    for _ in range(depth):
        deep = {"hunter22": [deep]}
    masked = Masker(["hunter22"]).value({"n": 1, "deep": deep})
    assert masked.pop("n") == 1
    each = masked.pop("deep")
    for _ in range(depth):
        (each,) = each[MASK]
    assert each == MASK


def test_texts_and_numbers_that_are_long_enough_are_worth_masking() -> None:
    value = {"a": ["short", "long enough"], "b": {"n": 123456, "t": True, "z": None, "p": 1234}}
    assert sorted(worth_masking(value)) == ["123456", "long enough"]


SECRETS = st.text(min_size=6, max_size=40).filter(lambda text: len(text.strip()) >= 6)


@hypothesis.given(secret=SECRETS, around=st.text(max_size=20), form=st.sampled_from(sorted(FORMS)))
def test_no_text_reveals_a_value(secret: str, around: str, form: str) -> None:
    text = around + FORMS[form](secret.strip()) + around
    masked = Masker([secret]).text(text)
    assert len(masked) <= 2 * len(around) + len(MASK)


# --- too much for the pattern --------------------------------------------------------------------

LONG_VALUES = {
    "texts": VALUE * 400,
    "characters": "p\u00e4ssw\u00f6rd \U0001f511 two " * 400,
    "digits": "0123456789" * 1_000,
    "lines": "\n".join(f"{n:04} line of a long value\t{n:04}" for n in range(300)),
}
RARE_FORMS = {"json in json", "json with escaped slashes", "url in lower case"}


@pytest.fixture(params=LONG_VALUES)
def long_value(request: pytest.FixtureRequest) -> str:
    assert len(LONG_VALUES[request.param]) > PATTERN_BYTES
    return LONG_VALUES[request.param]


@pytest.mark.parametrize("form", [form for form in FORMS if form not in RARE_FORMS])
def test_long_value_is_found_in_this_form(long_value: str, form: str) -> None:
    assert_is_masked(FORMS[form](long_value.strip()), of=long_value)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize("before", range(3))
def test_long_value_is_found_in_base64(
    long_value: str, before: int, after: int, encode: Callable[[bytes], bytes]
) -> None:
    content = b"x" * before + long_value.strip().encode() + b"y" * after
    masked = Masker([long_value]).text(encode(content).decode())
    left = masked.replace(MASK, "").replace("\n", "").rstrip("=")
    ends = 2
    assert len(left) <= (before * 8 + 5) // 6 + (after * 8 + 5) // 6 + ends, masked
    assert MASK in masked


def test_lines_of_a_long_value_are_found_by_themselves() -> None:
    lines = LONG_VALUES["lines"].splitlines()
    indented = "\n".join(f"    {line}" for line in lines)
    assert Masker([LONG_VALUES["lines"]]).text(indented) == "\n".join(["    ***"] * len(lines))


def test_short_value_beside_a_long_one_is_found_in_every_form(long_value: str) -> None:
    masker = Masker([long_value, VALUE[::-1]])
    for form in FORMS.values():
        assert masker.text(f"<{form(VALUE[::-1])}>").strip("<>*") == ""


def test_short_values_that_are_too_many_for_the_pattern_are_all_found() -> None:
    values = [f"value-{n:04}/" for n in range(PATTERN_BYTES // 5)]
    masked = Masker(values).value(
        {"all": values, "form": [quote(each, safe="") for each in values]}
    )
    assert masked == {"all": [MASK] * len(values), "form": [MASK] * len(values)}


@pytest.mark.parametrize("size", [100, 1_000, 3_333, 100_000])
def test_long_value_is_found_across_chunks(long_value: str, size: int) -> None:
    masker = Masker([long_value, VALUE[::-1]])
    content = f"before{long_value.strip()}{VALUE[::-1]}{long_value.strip()}after".encode()
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    stream = masker.stream()
    masked = b"".join([*map(stream.feed, chunks), stream.end()])
    assert masked.startswith(b"before***")
    assert masked.strip(b"befor*aft") == b""
    assert masked == masker.content(content)


def test_text_without_a_long_value_is_returned_as_it_is(long_value: str) -> None:
    text = "".join(random.Random(3).choices(string.printable, k=100_000))
    assert Masker([long_value]).text(text) is text


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_value_is_found_across_chunks(size: int) -> None:
    value = "sk_live_0123456789"
    text = f"before {value} {base64.b64encode(value.encode()).decode()} {value}{value} after"
    stream = Masker([value]).stream()
    content = text.encode()
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    masked = b"".join([*map(stream.feed, chunks), stream.end()])
    assert masked == b"before *** *** ****** after"


@hypothesis.given(
    parts=st.lists(
        st.sampled_from(["abc", "secret-value", "secret-", "value-too", " "]), max_size=30
    ),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=10),
)
def test_stream_says_what_the_whole_text_says(parts: list[str], sizes: list[int]) -> None:
    masker = Masker(["secret-value", "value-too-long"])
    content = "".join(parts).encode()
    stream, masked, at, turn = masker.stream(), b"", 0, 0
    while at < len(content):
        size = sizes[turn % len(sizes)]
        masked += stream.feed(content[at : at + size])
        at, turn = at + size, turn + 1
    assert masked + stream.end() == masker.content(content)


def test_stream_without_values_holds_nothing_back() -> None:
    stream = Masker([]).stream()
    assert stream.feed(b"at once") == b"at once"
    assert stream.end() == b""


# --- cost ----------------------------------------------------------------------------------------


@pytest.fixture
def twenty() -> list[str]:
    chance = random.Random(1)
    return ["".join(chance.choices(string.ascii_letters + string.digits + "-_+/=$!", k=40))
            for _ in range(20)]  # fmt: skip


def best_of_five(do: Callable[[], Any]) -> float:
    """The least processor time of this thread, in seconds."""
    spans = []
    for _ in range(5):
        began = time.thread_time()
        do()
        spans.append(time.thread_time() - began)
    return min(spans)


@pytest.mark.parametrize(("kind", "most"), [("text", 20), ("many small parts", 5)])
def test_megabyte_and_twenty_values_cost_a_few_times_what_its_json_does(
    twenty: list[str], kind: str, most: float
) -> None:
    """To make the pattern is counted, too. In milliseconds: docs/adr/0033."""
    chance = random.Random(2)
    text = "".join(chance.choices(string.printable, k=1 << 20))
    value: Any = text
    if kind != "text":
        value = {f"k{n}": [text[n * 10 : n * 10 + 8], n, None] for n in range(28_000)}
    assert Masker(twenty).value(value) is value
    masked = best_of_five(lambda: Masker(twenty).value(value))
    assert masked < most * best_of_five(lambda: json.dumps(value))


@pytest.mark.parametrize(
    "alphabet", [string.ascii_letters, string.punctuation, "\u00e4\u00f6\u6f22"]
)
def test_masker_of_a_long_value_is_made_as_soon_as_that_of_a_short_one(alphabet: str) -> None:
    """The pattern of 50,000 characters took a second or two, or was refused."""
    chance = random.Random(4)
    short, long = ("".join(chance.choices(alphabet, k=k)) for k in (1_000, 50_000))
    assert best_of_five(lambda: Masker([long])) < 10 * best_of_five(lambda: Masker([short]))


def test_values_stay_in_no_cache(twenty: list[str]) -> None:
    import re2

    Masker(twenty)
    before = re2._Regexp._make.cache_info().currsize
    Masker([value + "x" for value in twenty])
    assert re2._Regexp._make.cache_info().currsize == before
