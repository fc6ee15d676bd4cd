"""Schedules of timers, without a database or a clock.

schedule = parse("core.cron", {"cron": "0 5 * * *", "timezone": "Europe/Berlin"})
schedule.next_after(moment)                 # the next tick, in UTC
schedule.due(last_fired, now)               # what fires now, and when to look again
"""

from orchestrator.automation.schedules.parsing import TYPES, InvalidSchedule, parse
from orchestrator.automation.schedules.schedule import Due, Schedule, Tick

__all__ = ["TYPES", "Due", "InvalidSchedule", "Schedule", "Tick", "parse"]
