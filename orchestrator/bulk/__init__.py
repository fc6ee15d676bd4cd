"""Bulk orders: one verb on everything that matches a search, worked off by executors."""
