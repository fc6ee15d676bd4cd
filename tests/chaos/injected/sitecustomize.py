"""Imported by every Python process whose PYTHONPATH begins here, before anything else."""

from tests.chaos import injection

injection.install()
