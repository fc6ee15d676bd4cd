"""Executions on a fleet of workers: every accepted one ends once, in time, with a reason."""
