"""Policies: limits of what starts, over all executors."""
