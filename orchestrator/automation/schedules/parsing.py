"""The parameters of timers, checked and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from orchestrator.automation.problems import InvalidDocument, Problem, nearest_or_all
from orchestrator.automation.schedules import cron, zones
from orchestrator.automation.schedules.schedule import CATCH_UPS, LAST, Schedule
from orchestrator.automation.schedules.timings import Cron, Every, Once, Timing
from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.redaction import quoted

INTERVAL, CRON, DATE = TYPES = ("core.interval", "core.cron", "core.date")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
LONGEST_SECONDS = 10 * 366 * 86_400
SECONDS = f"a number of seconds from 1 to {LONGEST_SECONDS:,}, 10 years"


class InvalidSchedule(InvalidDocument):
    """The parameters of the timer have problems."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of timers."""

    name: str
    expected: str
    fits: Callable[[Any], bool]
    meaning: str
    default: Any = None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: is_whole(value) and low <= value <= high


def _is_seconds(value: Any) -> bool:
    return is_number(value) and 1 <= value <= LONGEST_SECONDS


def _is_field(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


A_TIME = "a date and time of ISO 8601"

COMMON = (
    Parameter("timezone", "a time zone of IANA, such as Europe/Berlin", _is_text,
              "The clock that the times are read from", "UTC"),
    Parameter("start_at", A_TIME, _is_text, "No tick before it"),
    Parameter("end_at", A_TIME, _is_text, "No tick at it or after it"),
    Parameter("jitter_seconds", "a whole number from 0 to 3,600", _whole(0, 3_600),
              "Each tick is late by up to as much; a tick always by the same", 0),
    Parameter("catch_up", f"one of {', '.join(CATCH_UPS)}", lambda value: value in CATCH_UPS,
              "What becomes of ticks that were due while nobody looked", LAST),
    Parameter("max_catch_up", "a whole number from 1 to 10,000", _whole(1, 10_000),
              "Most ticks that `all` catches up, the newest; the others are counted", 100),
    Parameter("grace_seconds", "a whole number from 0 to 86,400", _whole(0, 86_400),
              "How late a tick may be with `none`", 60),
)  # fmt: skip

OF_TYPE: Mapping[str, tuple[Parameter, ...]] = {
    INTERVAL: (
        Parameter("every_seconds", SECONDS, _is_seconds,
                  "The time from one tick to the next"),
        Parameter("unit", f"one of {', '.join(UNITS)}", lambda value: value in tuple(UNITS),
                  "StackStorm's unit of `delta`"),
        Parameter("delta", f"a whole number from 1 to {LONGEST_SECONDS:,}",
                  _whole(1, LONGEST_SECONDS), "StackStorm's time from one tick to the next"),
    ),
    CRON: (
        Parameter("cron", "five fields, or six with seconds first", _is_text,
                  "Five fields, or six with seconds first, or a name such as @daily"),
        *(Parameter(kind.name, "a field of cron", _is_field, "StackStorm's field")
          for kind in cron.NAMED),
    ),
    DATE: (
        Parameter("at", A_TIME, _is_text, "The one tick"),
        Parameter("date", A_TIME, _is_text, "StackStorm's name of `at`"),
    ),
}  # fmt: skip


@cache
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def parse(type_ref: str, parameters: Any, *, created_at: datetime | None = None) -> Schedule:
    """Read the parameters of a timer of the type `core.interval`, `core.cron` or `core.date`.

    `created_at` is the trigger's: the anchor of an interval without `start_at`, and nothing before
    it is caught up. Raises InvalidSchedule with all problems.
    """
    reader = _Reader(type_ref, parameters)
    schedule = reader.schedule(created_at)
    if reader.problems or schedule is None:
        raise InvalidSchedule(reader.problems)
    return schedule


class _Reader:
    """Reads the parameters, and notes what is wrong with them."""

    def __init__(self, type_ref: str, parameters: Any) -> None:
        self.problems: list[Problem] = []
        self._type = type_ref
        self._parameters: Mapping[str, Any] = {}
        self._given: set[str] = set()
        self._values: dict[str, Any] = {}
        if type_ref not in TYPES:
            hint = nearest_or_all(type_ref, TYPES)
            self._problem((), f"unknown type of timer {quoted(type_ref)}, {hint}")
        elif not isinstance(parameters, Mapping):
            self._problem((), f"expected a mapping of parameters, found {quoted(parameters)}")
        else:
            self._parameters = parameters
            self._given = set(map(str, parameters))

    def schedule(self, created_at: datetime | None) -> Schedule | None:
        if self.problems:
            return None
        self._check()
        values = self._values
        zone = self._zone(values["timezone"])
        start_at, end_at = self._moment("start_at", zone), self._moment("end_at", zone)
        if start_at and end_at and end_at <= start_at:
            self._problem(("end_at",), "expected a time after start_at, found one that is not")
        timing = self._timing(zone, start_at or created_at or EPOCH)
        if self.problems or timing is None:
            return None
        return Schedule(
            timing=timing,
            timezone=zone.key,
            created_at=created_at,
            start_at=start_at,
            end_at=end_at,
            jitter_seconds=values["jitter_seconds"],
            catch_up=values["catch_up"],
            max_catch_up=values["max_catch_up"],
            grace_seconds=values["grace_seconds"],
        )

    def _problem(self, where: tuple[str, ...], message: str) -> None:
        self.problems.append(Problem(where, message))

    def _check(self) -> None:
        """Keep the values that are right, and the defaults of the others."""
        known = {each.name: each for each in (*OF_TYPE[self._type], *COMMON)}
        for name in sorted(self._given - known.keys()):
            self._problem((name,), f"unknown key, {nearest_or_all(name, known)}")
        for name, parameter in known.items():
            value = self._parameters.get(name, parameter.default)
            if name not in self._given or parameter.fits(value):
                self._values[name] = value
            else:
                expected = f"expected {parameter.expected}, found {quoted(value)}"
                self._problem((name,), expected)
                self._values[name] = parameter.default

    def _zone(self, name: str) -> ZoneInfo:
        known = _time_zones()
        if name in known:
            return ZoneInfo(name)
        near = nearest_or_all(name, known)
        hint = f", {near}" if near.startswith("did") else ", such as Europe/Berlin"
        self._problem(("timezone",), f"unknown time zone {quoted(name)}{hint}")
        return ZoneInfo("UTC")

    def _moment(self, name: str, zone: ZoneInfo) -> datetime | None:
        """Read a time; one without an offset is read from the clock of the zone."""
        text = self._values.get(name)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
            in_utc = moment.astimezone(UTC) if moment.tzinfo else zones.instant(zone, moment)
        except (ValueError, OverflowError):
            self._problem((name,), f"expected {A_TIME}, found {quoted(text)}")
            return None
        if not 1970 <= in_utc.year <= 9_000:
            self._problem((name,), f"expected a year from 1970 to 9000, found {in_utc.year}")
            return None
        return in_utc

    # --- types -----------------------------------------------------------------------------------

    def _timing(self, zone: ZoneInfo, anchor: datetime) -> Timing | None:
        if self._type == INTERVAL:
            return self._every(anchor)
        if self._type == CRON:
            return self._cron(zone)
        name = self._one_of("at", "date")
        at = self._moment(name, zone) if name else None
        return Once(at) if at else None

    def _every(self, anchor: datetime) -> Timing | None:
        ours, theirs = {"every_seconds"}, {"unit", "delta"}
        if self._given & ours and self._given & theirs:
            self._problem(("every_seconds",), "expected it, or unit and delta, found both")
        elif not (self._given >= ours or self._given >= theirs):
            self._problem((), f"every_seconds: missing key, expected {SECONDS}")
        if self.problems:
            return None
        values = self._values
        seconds = values.get("every_seconds") or values["delta"] * UNITS[values["unit"]]
        if seconds > LONGEST_SECONDS:
            found = f"{values['delta']} {values['unit']}"
            self._problem(("delta",), f"expected at most 10 years, found {found}")
            return None
        return Every(timedelta(seconds=seconds), anchor.astimezone(UTC))

    def _cron(self, zone: ZoneInfo) -> Timing | None:
        named = {kind.name for kind in cron.NAMED} & self._given
        if "cron" in self._given and named:
            self._problem(("cron",), f"expected it, or named fields, found also {min(named)}")
        elif "cron" not in self._given and not named:
            self._problem((), "cron: missing key, expected five fields such as '0 5 * * *'")
        if self.problems:
            return None
        try:
            if named:
                fields, faults = cron.read_named({name: self._values[name] for name in named})
                for name, fault in faults.items():
                    self._problem((name,), fault)
            else:
                fields = cron.read_text(self._values["cron"])
        except cron.InvalidField as error:
            self._problem(("cron",) if not named else (), str(error))
            return None
        return Cron(fields, zone) if fields else None

    def _one_of(self, name: str, other: str) -> str | None:
        if name in self._given and other in self._given:
            self._problem((other,), f"expected {name} or {other}, found both")
        given = next((each for each in (name, other) if each in self._given), None)
        if given is None:
            self._problem((), f"{name}: missing key, expected {A_TIME}")
        return given
