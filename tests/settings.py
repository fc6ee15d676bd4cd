"""Muster's own settings, over a data directory that goes when the tests have ended.

What a test starts as a process of its own inherits the directory, unless the test names another.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "MUSTER_DATA_DIR" not in os.environ:
    os.environ["MUSTER_DATA_DIR"] = _directory = tempfile.mkdtemp(prefix="muster-tests-")
    atexit.register(shutil.rmtree, _directory, ignore_errors=True)

from settings.base import *  # noqa: F403 - reads the environment when it is imported

# logging in with a made-up password takes no quarter of a second; services verify these hashes, too
PASSWORD_HASHERS = ["tests.hashing.QuickHasher"]
# every client of a test would list all static files anew, which takes longer than its request
WHITENOISE_AUTOREFRESH = True
