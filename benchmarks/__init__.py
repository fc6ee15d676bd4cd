"""Muster measured: against others that do a part of its work, and against its own goals.

`make bench`, or `python -m benchmarks --help`. What came out is in docs/performance.md.
"""
