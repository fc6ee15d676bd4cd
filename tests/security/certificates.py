"""Certificates made for one test: an authority, and what it signs for a name."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests import servers


@dataclass(frozen=True)
class Certificate:
    """Files of a certificate and its key, which the servers' user owns."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; clients that have `file` believe them. `close` removes everything."""

    def __init__(self, name: str = "authority") -> None:
        self._openssl = servers.find("openssl")
        # the servers run as another user, and pytest's folders are private
        self.directory = Path(tempfile.mkdtemp(prefix="muster-tls-"))
        self.directory.chmod(0o711)
        self.file, self._key = self.directory / "ca.pem", self.directory / "ca.key"
        self.run(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN=muster test {name}", "-keyout", self._key, "-out", self.file),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        self.file.chmod(0o644)

    def certificate(self, *names: str, usage: str = "serverAuth", days: int = 2) -> Certificate:
        """Sign a certificate for these names, as `DNS:localhost` and `IP:127.0.0.1`. With -1 days
        it has expired."""
        stem = f"{names[0].replace(':', '-')}-{usage}-{days}"
        made = Certificate(self.directory / f"{stem}.pem", self.directory / f"{stem}.key")
        request, extensions = self.directory / f"{stem}.csr", self.directory / f"{stem}.cnf"
        extensions.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage={usage}\n")
        self.run(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=muster test server"),
            *("-keyout", made.key, "-out", request),
        )
        self.run(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key),
            *("-CAcreateserial", "-days", days, "-extfile", extensions, "-out", made.certificate),
        )
        made.certificate.chmod(0o644)
        servers.give_file_to_owner(made.key)
        return made

    def close(self) -> None:
        shutil.rmtree(self.directory)

    def run(self, *arguments: object) -> None:
        subprocess.run(
            [str(self._openssl), *map(str, arguments)], check=True, capture_output=True, timeout=60
        )
