"""`python -m workers.runtimes`: what a worker of this environment would offer, and why not more.

`manage.py worker --runtimes` becomes this.
"""

from __future__ import annotations

import os

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
    django.setup()

    from rich.console import Console
    from rich.table import Table

    from workers.runtimes import registry

    table = Table()
    table.add_column("runtime")
    table.add_column("offered")
    table.add_column("why not", overflow="fold")
    for name, why_not in registry.survey().items():
        table.add_row(name, "no" if why_not else "yes", why_not)
    Console().print(table)
