#!/usr/bin/env python
"""Muster's command line: `manage.py help` lists the commands."""

import gc
import os
import sys

if __name__ == "__main__":
    gc.disable()  # nothing that is loaded at the start is garbage; `program` enables it
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
    try:
        from orchestrator.core.management import program
        from settings import variables

        with variables.refused_in_one_line(is_traced="--traceback" in sys.argv):
            program.run(sys.argv)
    except KeyboardInterrupt:  # while it was loading: a command that runs ends in its own way
        sys.exit(130)
