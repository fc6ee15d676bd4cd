"""`python -m workers.survey`: the runtimes that a worker here offers, and why not the others.

`manage.py worker --runtimes` executes this, as commands must not import workers.
"""

from __future__ import annotations

import os

import django
from rich.console import Console
from rich.table import Table


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
    django.setup()
    from workers.runtimes import registry  # needs what was just set up

    table = Table()
    table.add_column("runtime")
    table.add_column("offered")
    table.add_column("isolation")
    table.add_column("why not", overflow="fold")
    for name, why_not in registry.survey().items():
        if why_not:
            table.add_row(name, "no", "", why_not)
        else:
            table.add_row(name, "yes", registry.span(name), "")
    console = Console()
    console.print(table, width=min(console.width, 100) if console.is_terminal else 100)


if __name__ == "__main__":
    main()
