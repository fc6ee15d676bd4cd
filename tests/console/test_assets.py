"""What a browser loads: ours, small, and what others wrote as it was published."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

from orchestrator import console

STATIC = Path(console.__file__).parent / "static" / "console"
VENDOR = STATIC / "vendor"
TEMPLATES = Path(console.__file__).parent / "templates" / "console"
LINES_MAX = 900
BYTES_MAX, GZIPPED_MAX, REQUESTS_MAX = 130_000, 45_000, 5


def test_what_others_wrote_is_as_it_was_published_and_has_its_licence() -> None:
    listed = json.loads((VENDOR / "vendor.json").read_text())
    for each in listed:
        content = (VENDOR / each["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each["sha256"], each["file"]
        assert (VENDOR / each["licence_file"]).read_text()
        assert all(each[key] for key in ("package", "version", "licence", "origin", "why"))
    known = {each[key] for each in listed for key in ("file", "licence_file")}
    assert {path.name for path in VENDOR.iterdir()} == known | {"vendor.json"}


def test_our_scripts_stay_few() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in STATIC.glob("*.js"))
    assert lines <= LINES_MAX


def test_nothing_evaluates_text_or_makes_html_of_it() -> None:
    for path in STATIC.glob("*.js"):
        script = path.read_text()
        for word in ("eval(", "new Function", "innerHTML", "insertAdjacentHTML", "document.write"):
            assert word not in script, path.name


def test_all_scripts_and_styles_of_a_first_visit_are_small() -> None:
    files = [*STATIC.glob("*.js"), *STATIC.glob("*.css"), *VENDOR.glob("*.js")]
    contents = [path.read_bytes() for path in files]
    assert sum(map(len, contents)) <= BYTES_MAX
    assert sum(len(gzip.compress(each)) for each in contents) <= GZIPPED_MAX


def test_a_first_visit_asks_for_five_scripts_and_styles_at_most() -> None:
    head = (TEMPLATES / "skeleton.html").read_text()
    head = re.sub("<noscript>.*</noscript>", "", head)  # in place of the scripts
    loaded = set(re.findall(r"static 'console/([^']+\.(?:js|css))'", head))
    imported = {
        each for name in loaded if name.endswith(".js")
        for each in re.findall(r'^import .*"\./(.+)";$', (STATIC / name).read_text(), re.MULTILINE)
    }  # fmt: skip
    assert imported <= loaded, "what the page names is loaded at once, what a script names later"
    assert len(loaded) <= REQUESTS_MAX
    assert {path.name for path in STATIC.glob("*.js")} == {
        *(name for name in loaded if "/" not in name and name.endswith(".js")), "again.js"
    }  # fmt: skip
