"""The warm process: calls functions, one after another, for a launcher (`workers.runtimes.warm`).

Requests come on standard input, answers go to standard output, both taken away before a function is
called: what it prints goes to standard error. SIGTERM interrupts a function, whose `finally` blocks
run; a process that calls none ends. The end of the requests ends it, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from muster_client import calling
from workers import hiding
from workers.isolated import functions, results
from workers.isolated.messages import HEADER, framed

OWN_FILES = (__file__, functions.__file__)


class Interrupted(BaseException):
    """The action was interrupted. Not an Exception: `except Exception` must not swallow it."""


class Runner:
    def __init__(self) -> None:
        self.requests, self.answers = os.dup(0), os.dup(1)
        # not its path, of which a part may be closed to this user
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.is_calling = False
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        hiding.guard()
        signal.signal(signal.SIGTERM, self._interrupt)

    def serve(self) -> None:
        process_id = os.getpid()
        for request in self._requests():
            answer = self._answer(json.loads(request))
            if os.getpid() != process_id:
                os._exit(1)  # the action forked, and this is its child
            self._send(framed(answer.encode("utf-8", "surrogatepass")))

    def _requests(self) -> Iterator[bytes]:
        while header := self._read(HEADER.size):
            yield self._read(*HEADER.unpack(header))

    def _read(self, size: int) -> bytes:
        """Read so many bytes; fewer at the end of the requests."""
        read = os.read(self.requests, size)
        while read and len(read) < size and (more := os.read(self.requests, size - len(read))):
            read += more
        return read

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self.answers, message) :]

    def _answer(self, request: dict[str, Any]) -> str:
        environment = request["environment"]
        os.environ.update(environment)
        try:
            with hiding.of(request["secrets"]):  # for texts that are cut here
                return self._said(request)
        finally:
            for name in environment:
                os.environ.pop(name, None)
            os.chdir(self.home)  # a descriptor

    def _said(self, request: dict[str, Any]) -> str:
        try:
            return self._call(request)
        except Interrupted:
            return '{"interrupted": true}'
        except functions.CannotLoad as error:
            return json.dumps({"unavailable": str(error)})
        except results.NotStorable as error:
            return json.dumps({"refused": str(error)})
        except BaseException as error:  # noqa: BLE001 - whatever an action raises is its answer
            return json.dumps(functions.described(error, callers=OWN_FILES))

    def _call(self, request: dict[str, Any]) -> str:
        try:
            self.is_calling = True
            function = functions.load(request["entry_point"])
            value = calling.call(function, request["parameters"])
            written = results.written(value, limit_bytes=request["limit_bytes"])
        finally:
            self.is_calling = False
        return f'{{"value": {written}}}'

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_calling:
            raise Interrupted
        os._exit(0)


def main() -> None:
    folder = sys.argv.pop()
    if folder not in sys.path:
        sys.path.append(folder)
    Runner().serve()


if __name__ == "__main__":
    main()
