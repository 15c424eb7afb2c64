"""A second authority, which nobody trusts who was not told to: as a company's own is."""

from dataclasses import replace
from pathlib import Path

from tests.cluster import certificates
from tests.cluster.commands import run
from tests.cluster.layout import Layout
from tests.cluster.store import lock


class Authority:
    """An authority with a folder of its own, made when it is first asked for.

    Args:
        folder: of its keys and certificates.
    """

    def __init__(self, at: Layout, folder: Path) -> None:
        self._at = replace(at, folder=folder)

    @property
    def certificate(self) -> Path:
        """The file that those need who shall trust it."""
        return self._at.pki / "ca.crt"

    def sign(self, name: str, addresses: list[str]) -> tuple[Path, Path]:
        """Return the files of a certificate and its key, for a server at these addresses."""
        pki = self._at.pki
        with lock():  # tests of other processes ask for it too
            if not self.certificate.exists():
                pki.mkdir(mode=0o700, parents=True, exist_ok=True)
                run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                     "ec_paramgen_curve:P-256", "-nodes", "-keyout", pki / "ca.key", "-days", "365",
                     "-subj", "/CN=own-authority", "-out", self.certificate])  # fmt: skip
        certificates.sign(self._at, name, f"/CN={name}", addresses=addresses)
        return pki / f"{name}.crt", pki / f"{name}.key"
