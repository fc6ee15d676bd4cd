"""`python -m workers.survey`: what a worker of this environment offers, and why not more.

`manage.py worker --runtimes` becomes this, as commands know nothing of workers.
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
    table.add_column("why not", overflow="fold")
    for name, why_not in registry.survey().items():
        table.add_row(name, "no" if why_not else "yes", why_not)
    console = Console()
    console.print(table, width=min(console.width, 100) if console.is_terminal else 100)


if __name__ == "__main__":
    main()
