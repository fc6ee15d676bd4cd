"""Notifications: who listens is told that something changed. Hints, never the truth."""
