"""Call a function in an interpreter of its own: `python_runner.py MODULE:FUNCTION FOLDER`.

Parameters come as JSON on stdin; the outcome goes to the file MSTR_RESULT_FILE: `{"value": ...}`,
or `exception`, `message` and `traceback`, with `try_again` if the action asks for another attempt
and `task_rejected` if it cannot begin now, or `unavailable` if there is no such function, so that
nothing was called. FOLDER is the last place where the module is looked for, but for Muster's own
code. For any Python since 3.8, with its standard library only: the pack's interpreter runs it.
"""

import sys

sys.path.pop(0)  # our own folder, which has modules with the names of others

import importlib
import json
import os
import traceback

# more than is kept: the worker masks secrets before it cuts the rest off
MESSAGE_LIMIT = 20000
TRACEBACK_LIMIT = 100000
LIMIT_BYTES = 1048576
OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder where `muster_client` is."""


class CannotLoad(Exception):
    """The entry point does not lead to a function."""


def main():  # type: ignore[no-untyped-def]
    process_id = os.getpid()
    try:
        function = load(sys.argv[1], sys.argv[2])
        from muster_client import calling

        answer = {"value": calling.call(function, json.load(sys.stdin))}
        written = json.dumps(answer, allow_nan=False)
        if len(written) > LIMIT_BYTES:
            raise ValueError(f"it returned {len(written)} bytes of JSON, {LIMIT_BYTES} are kept")
    except CannotLoad as error:
        written = json.dumps({"unavailable": str(error)})
    except BaseException as error:  # noqa: BLE001 - every exception is reported
        written = json.dumps(described(error))
    if os.getpid() != process_id:
        os._exit(1)  # the action forked, and this is its child
    with open(os.environ["MSTR_RESULT_FILE"], "w") as file:
        file.write(written)
    sys.exit(written[1:8] != '"value"')


def load(entry_point, folder):  # type: ignore[no-untyped-def]
    """Load the function. Raises CannotLoad, or the errors of the import."""
    sys.path += [folder, OURS]
    module_name, _, name = entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # a module that the action's own module fails to import is the action's error
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise CannotLoad(f"entry point {entry_point}: there is no module {error.name!r}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise CannotLoad(f"entry point {entry_point}: {module_name} has no function {name!r}")
    return function


def described(error):  # type: ignore[no-untyped-def]
    """Describe an exception: type, message and traceback, without the frames above the action's
    own."""
    from muster_client import calling

    asked = calling.asked(error)
    error = calling.cause(error)
    callers = (__file__, *calling.OWN_FILES)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in callers:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    message = calling.message(error)
    return {
        "exception": type(error).__qualname__,
        "message": message[:MESSAGE_LIMIT],
        "traceback": "".join(lines)[-TRACEBACK_LIMIT:],
        **asked,
    }


if __name__ == "__main__":
    main()
