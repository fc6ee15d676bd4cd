"""The code that runs in the processes of actions. It imports neither Django nor settings, as no
credential may be known there: `tests/workers/test_isolated.py` holds that."""
