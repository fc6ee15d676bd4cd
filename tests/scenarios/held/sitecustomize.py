"""Imported first by executors that get stuck in a task whose template is called `poison`.

Whoever takes such a task in hand says so in the file HELD, and comes no further: it is for the
scenario to kill it, as an executor would be killed that computes for ever or takes all memory.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import time
from typing import Any

from tests.chaos import injection

MODULE = "orchestrator.workflows.engine.advancing"


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: Any) -> None:
        super().exec_module(module)
        settle = module.settle

        def held(turns: Any) -> Any:
            if any(turn.definition.name == "poison" for turn in turns):
                with open(os.environ["HELD"], "a") as file:
                    file.write(f"{os.getpid()}\n")
                while True:
                    time.sleep(1)
            return settle(turns)

        module.settle = held


sys.meta_path.insert(0, injection.Finder(MODULE.__eq__, _Loader))
