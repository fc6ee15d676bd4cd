"""Numbers over time and causes of failures, made from the history of executions.

    marks       reads the history once, whoever commits when, whatever dies
    minutes     how many executions came into which status, by minute, quarter and hour
    causes      what failed with the same message, but for ids, numbers and names
    inbox       pending investigations by cause, and the end of those of one cause

Nothing on the hot path knows of it. See ADR 90 and 91.
"""
