"""The same files are the same release, on any host; whatever leads outside is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orchestrator.core.packs import archives
from orchestrator.core.packs.archives import Corrupt, NotPackable


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(NotPackable) as error:
        read()
    return str(error.value)


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return written.getvalue()


def tar_end() -> bytes:
    return bytes(2 * tarfile.BLOCKSIZE)


PACK = ("net/pack.yaml", b'name: net\nversion: "1.0"\n')


class TestDigest:
    def test_times_modes_and_order_do_not_count_but_programs_do(self, folder, tmp_path):
        folder.write("b.txt", "b")
        folder.write("a.txt", "a")
        before = archives.read(folder.path)
        other = tmp_path / "elsewhere" / "net"
        for name in ("a.txt", "b.txt", "pack.yaml"):
            other.mkdir(parents=True, exist_ok=True)
            (other / name).write_bytes((folder.path / name).read_bytes())
            os.utime(other / name, (0, 0))
            (other / name).chmod(0o600)
        assert archives.read(other).digest == before.digest
        (other / "a.txt").chmod(0o700)
        assert archives.read(other).digest != before.digest

    @pytest.mark.parametrize("change", ["content", "name", "folder", "more"])
    def test_any_other_file_is_another_release(self, folder, change):
        folder.write("a.txt", "a")
        before = archives.read(folder.path).digest
        place = folder.path
        if change == "content":
            folder.write("a.txt", "b")
        elif change == "name":
            (place / "a.txt").rename(place / "b.txt")
        elif change == "more":
            folder.write("b.txt", "")
        else:
            place = place.rename(place.with_name("other"))
        assert archives.read(place).digest != before

    def test_what_others_make_beside_the_files_is_left_out(self, folder):
        before = archives.read(folder.path).digest
        for name in ("__pycache__/a.pyc", ".git/HEAD", "deep/.venv/bin/python", "old.pyc"):
            folder.write(name, "x")
        assert archives.read(folder.path).digest == before

    def test_an_archive_of_the_folder_is_the_same_release(self, folder, tmp_path):
        folder.write("deep/a.txt", "a")
        folder.write("run.sh", "#!/bin/sh\n")
        (folder.path / "run.sh").chmod(0o755)
        expected = archives.read(folder.path).digest
        tarred, zipped = tmp_path / "net.tar.gz", tmp_path / "net.zip"
        with tarfile.open(tarred, "w:gz") as archive:
            archive.add(folder.path, "net")
        with zipfile.ZipFile(zipped, "w") as archive:
            for file in sorted(folder.path.rglob("*")):
                archive.write(file, file.relative_to(folder.path.parent))
        assert archives.read(tarred).digest == archives.read(zipped).digest == expected
        with tarfile.open(tarred, "w") as archive:  # the files alone: named after the pack
            archive.add(folder.path, ".")
        assert archives.read(tarred).digest == expected


class TestRefusals:
    def test_every_link_of_a_folder_is_named(self, folder):
        (folder.path / "passwd").symlink_to("/etc/passwd")
        (folder.path / "self").symlink_to(folder.path)
        text = refused(lambda: archives.read(folder.path))
        assert "net/passwd: expected a file, found a link" in text
        assert "net/self: expected a file, found a link" in text

    def test_a_pipe_is_refused_and_not_waited_for(self, folder):
        os.mkfifo(folder.path / "pipe")
        assert "net/pipe: expected a file, found a device or a pipe" in refused(
            lambda: archives.read(folder.path)
        )

    @pytest.mark.parametrize("name", ["../evil", "/etc/evil", "net/../../evil", "net\\evil"])
    def test_names_that_lead_outside_are_refused(self, name):
        text = refused(lambda: archives.read_archive(tar(PACK, (name, b"x")), name="a.tar"))
        assert "found one that leads outside" in text

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
    def test_links_and_devices_of_archives_are_refused(self, kind):
        link = tarfile.TarInfo("net/link")
        link.type, link.linkname = kind, "/etc/passwd"
        text = refused(lambda: archives.read_archive(tar(PACK, link), name="a.tar"))
        assert "'net/link': expected a file, found a link or a device" in text

    def test_links_of_zip_archives_are_refused(self):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            link = zipfile.ZipInfo("net/link")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, "/etc/passwd")
        text = refused(lambda: archives.read_archive(written.getvalue(), name="a.zip"))
        assert "found a link or a device" in text

    def test_a_file_that_is_there_twice_is_refused(self):
        twice = tar(PACK, ("net/a", b"1"), ("net/a", b"2"))
        assert "it is there twice" in refused(lambda: archives.read_archive(twice, name="a"))

    @pytest.mark.parametrize(
        "archive",
        [b"", b"PK\x03\x04junk", b"no archive", tar(PACK)[:40]],
        ids=["nothing", "zip", "text", "tar"],
    )
    def test_what_is_no_archive_is_refused(self, archive):
        assert "expected" in refused(lambda: archives.read_archive(archive, name="a"))

    def test_an_archive_without_a_pack_is_refused(self):
        text = refused(lambda: archives.read_archive(tar(("a/b", b"")), name="a"))
        assert "expected a file pack.yaml" in text

    @pytest.mark.parametrize("kind", ["tar", "zip"])
    def test_what_expands_to_more_than_the_limit_is_read_no_further(self, kind, settings):
        settings.MUSTER = replace(settings.MUSTER, pack_limit_mb=1.0)
        zeros = bytes(8 * archives.MIB)
        if kind == "tar":
            bomb = tar(PACK, ("net/zeros", zeros))
        else:
            written = io.BytesIO()
            with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("net/zeros", zeros)
            bomb = written.getvalue()
        assert len(bomb) < archives.MIB
        assert "MUSTER_PACK_LIMIT_MB" in refused(lambda: archives.read_archive(bomb, name="a"))

    @pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
    def test_names_that_expand_to_megabytes_are_read_no_further(self, kind):
        header = tarfile.TarInfo("././@LongLink")
        header.type, header.size = kind, 32 * archives.MIB
        bomb = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(header.size) + tar_end())
        tracemalloc.start()
        try:
            text = refused(lambda: archives.read_archive(bomb, name="a.tar.gz"))
            assert tracemalloc.get_traced_memory()[1] < 2 * archives.MIB
        finally:
            tracemalloc.stop()
        assert "expected at most 65,536 bytes before a file" in text

    def test_what_is_left_out_counts_while_it_is_expanded(self, settings, monkeypatch):
        settings.MUSTER = replace(settings.MUSTER, pack_limit_mb=1.0)
        monkeypatch.setattr(archives, "MOST_FILES", 10)
        bomb = tar(PACK, *((f"net/.git/{n}", bytes(archives.MIB)) for n in range(3)))
        assert "MUSTER_PACK_LIMIT_MB" in refused(lambda: archives.read_archive(bomb, name="a"))

    def test_what_is_left_out_of_a_zip_is_not_expanded(self):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("net/.git/zeros", bytes(archives.MIB))
            archive.writestr(*PACK, zipfile.ZIP_STORED)
        content = archives.read_archive(written.getvalue(), name="a.zip")
        assert [file.path for file in content.files] == ["pack.yaml"]

    @pytest.mark.parametrize("mode", ["w:xz", "w:bz2"])
    def test_other_compressions_are_refused(self, mode):
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode=mode) as archive:
            archive.addfile(tarfile.TarInfo("net/pack.yaml"))
        text = refused(lambda: archives.read_archive(written.getvalue(), name="a"))
        assert "expected a .tar, .tar.gz or .zip archive" in text

    def test_other_compressions_in_a_zip_are_refused(self):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr(*PACK)
        text = refused(lambda: archives.read_archive(written.getvalue(), name="a.zip"))
        assert "expected it stored or deflated" in text

    def test_a_zip_with_too_many_entries_is_not_opened(self, monkeypatch):
        monkeypatch.setattr(archives, "MOST_FILES", 2)
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for number in range(5):
                archive.writestr(f"net/{number}", b"")
        text = refused(lambda: archives.read_archive(written.getvalue(), name="a.zip"))
        assert "expected at most 2 files" in text

    def test_a_path_that_is_a_file_and_a_folder_is_refused(self):
        both = tar(PACK, ("net/x", b""), ("net/x/y", b""))
        text = refused(lambda: archives.read_archive(both, name="a.tar"))
        assert "'x': expected a file or a folder, found both" in text

    def test_a_name_that_is_a_path_is_refused(self):
        text = refused(
            lambda: archives.read_archive(tar(("pack.yaml", b"name: a/b\n")), name="a.tar")
        )
        assert "cannot be a folder's name: 'a/b'" in text

    @pytest.mark.parametrize("kind", ["tar", "zip"])
    def test_damaged_archives_are_refused_or_read(self, kind):
        whole = gzip.decompress(tar(PACK, ("net/a", b"a" * 300)))
        if kind == "zip":
            written = io.BytesIO()
            with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(*PACK)
                archive.writestr("net/a", b"a" * 300)
            whole = written.getvalue()
        random = Random(7)
        for _ in range(1_000):
            damaged = bytearray(whole[: random.choice([len(whole), random.randrange(len(whole))])])
            for _ in range(random.randrange(1, 4)):
                if damaged:
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
            with contextlib.suppress(NotPackable):
                archives.read_archive(bytes(damaged), name="a")

    def test_a_folder_that_is_too_large_is_refused(self, folder, settings):
        settings.MUSTER = replace(settings.MUSTER, pack_limit_mb=0.001)
        folder.write("large", bytes(2_000))
        assert "found more" in refused(lambda: archives.read(folder.path))

    def test_a_path_that_is_not_there_is_refused(self, tmp_path):
        assert "found none" in refused(lambda: archives.read(tmp_path / "nowhere"))


class TestPacked:
    def test_it_comes_out_as_it_went_in(self, folder):
        folder.write("deep/ä.bin", bytes(range(256)))
        (folder.path / "deep/ä.bin").chmod(0o755)
        content = archives.read(folder.path)
        again = archives.unpack(
            archives.pack(content), folder="net", digest=content.digest, size=content.size
        )
        assert again == content

    @pytest.mark.parametrize("fault", ["short", "bit", "other", "junk", "empty", "bomb"])
    def test_whatever_is_not_its_digest_is_corrupt(self, folder, fault):
        content = archives.read(folder.path)
        packed = archives.pack(content)
        folder.write("more", bytes(5_000_000))
        faults = {
            "short": packed[: len(packed) // 2],
            "bit": packed[:30] + bytes([packed[30] ^ 1]) + packed[31:],
            "other": archives.pack(replace(content, files=content.files[:0])),
            "junk": b"junk",
            "empty": b"",
            "bomb": archives.pack(archives.read(folder.path)),
        }
        with pytest.raises(Corrupt):
            archives.unpack(faults[fault], folder="net", digest=content.digest, size=content.size)

    def test_what_is_written_is_read_only_and_the_same(self, folder, tmp_path):
        folder.write("deep/run.sh", "#!/bin/sh\n")
        (folder.path / "deep/run.sh").chmod(0o755)
        content = archives.read(folder.path)
        place = tmp_path / "there" / "net"
        place.parent.mkdir()
        archives.write(content, place, file_mode=0o400, folder_mode=0o500)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*")}
        assert modes == {"deep": 0o500, "run.sh": 0o500, "pack.yaml": 0o400}
        assert archives.read(place).digest == content.digest
        _open(place)


def _open(place: Path) -> None:
    """Let pytest remove it."""
    for path in (place, *place.rglob("*")):
        path.chmod(0o700)
