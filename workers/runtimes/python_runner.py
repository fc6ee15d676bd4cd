"""Calls a function in an interpreter of its own: `python_runner.py MODULE:FUNCTION FOLDER`.

Parameters come as JSON on stdin; what became of them goes to the file MSTR_RESULT_FILE: `{"value":
...}`, or `exception`, `message` and `traceback`. FOLDER is where the module is looked for, last.
For any Python since 3.8, and with its standard library only: the pack's interpreter runs it.
"""

import sys

sys.path.pop(0)  # our own folder, which has modules with the names of others

import importlib
import json
import os
import traceback

MESSAGE_LIMIT = 2000
TRACEBACK_LIMIT = 20000
LIMIT_BYTES = 1048576


def main():  # type: ignore[no-untyped-def]
    process_id = os.getpid()
    try:
        answer = {"value": call(sys.argv[1], sys.argv[2], json.load(sys.stdin))}
        written = json.dumps(answer, allow_nan=False)
        if len(written) > LIMIT_BYTES:
            raise ValueError(f"it returned {len(written)} bytes of JSON, {LIMIT_BYTES} are kept")
    except BaseException as error:  # noqa: BLE001 - told, whatever it is
        written = json.dumps(told(error))
    if os.getpid() != process_id:
        os._exit(1)  # the action forked, and this is its child
    with open(os.environ["MSTR_RESULT_FILE"], "w") as file:
        file.write(written)
    sys.exit(written[1:8] != '"value"')


def call(entry_point, folder, parameters):  # type: ignore[no-untyped-def]
    sys.path.append(folder)
    module, _, name = entry_point.partition(":")
    return getattr(importlib.import_module(module), name)(**parameters)


def told(error):  # type: ignore[no-untyped-def]
    """An exception's type, message and traceback, without the frames above the action's own."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return {
        "exception": type(error).__qualname__,
        "message": message[:MESSAGE_LIMIT],
        "traceback": "".join(lines)[-TRACEBACK_LIMIT:],
    }


if __name__ == "__main__":
    main()
