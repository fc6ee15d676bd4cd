#!/usr/bin/env python
"""Muster's command line: `manage.py help` lists the commands."""

import os
import sys

from orchestrator.core.management import program

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
    program.run(sys.argv)
