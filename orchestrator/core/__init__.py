"""Executions on a fleet of workers: every accepted execution ends once, in time, with a reason."""
