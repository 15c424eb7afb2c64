"""What stands on the tests' cluster for the places that the documentation names as examples."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import certificates, pins
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.programs import programs
from tests.e2e.images.copies import layered
from tests.helpers.debs import Repository
from tests.helpers.kernels import IN_PODS
from tests.helpers.packages import Index

TABULATE = """
def tabulate(rows, headers):
    return "\\n".join(" ".join(map(str, row)) for row in [headers, *rows])
"""
TORCH = "usr/lib/python3/dist-packages/torch"
TORCHRUN = """import runpy, sys
runpy.run_path(next(word for word in sys.argv[1:] if word.endswith(".py")), run_name="__main__")
"""
OPERATOR = (
    f'"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref={pins.OPERATOR}"'
)


@dataclass
class Shelf:
    """Images and packages of the examples.

    Args:
        cluster: Its registry has the images.
        repository: A new one of that registry.
        index: Packages of Python.
        debs: Packages of Debian.
    """

    cluster: Cluster
    repository: str
    index: Index
    debs: Repository
    images: dict[str, str] = field(default_factory=dict)
    """By their names in tests/cluster/recipes.py; pods that build with them find the packages."""

    def fill(self) -> None:
        """Put all that the examples ask for onto it."""
        for name, version in (("pandas", "3.0"), ("scikit_learn", "1.7.2")):
            self.index.add(name, version)
        self.index.add("tabulate", "0.9.0", code=TABULATE)
        for name in ("libgomp1", "git"):
            self.debs.add(name, "1", {f"usr/share/doc/{name}/ours": name})
        # The images' Python is Debian's, which asks for the last.
        pip = f"index-url = {self.index.url}\ntrusted-host = {self.index.host}\n"
        pip += "break-system-packages = true\n"
        # On a node with a GPU, its driver brings this program. It tells the job to end.
        smi = "#!/bin/sh\necho 0 GPUs\ntouch /tmp/asked\n"
        files = {
            "etc/apt/sources.list": self.debs.source,
            "etc/pip.conf": f"[global]\n{pip}",
            "usr/bin/nvidia-smi": smi,
        }
        # The examples train nothing here, and a pod that builds would unpack the real frameworks
        # for a minute. Of PyTorch, a cell with two replicas needs torchrun.
        torch = {f"{TORCH}/{name}__init__.py": "" for name in ("", "distributed/")}
        files |= torch | {f"{TORCH}/distributed/run.py": TORCHRUN}
        for name in ("python", "s2i-python"):
            self.images[name] = layered(self.cluster, name, f"{self.repository}/{name}", files)


@dataclass
class Ground:
    """A namespace of an example's team, in which ada works.

    Args:
        shelf: What her cells ask for.
        folder: Of files of hers.
        namespace: It stands for team-a, and need not exist yet.
    """

    shelf: Shelf
    folder: Path
    namespace: Namespace

    def __post_init__(self) -> None:
        host, name = self.shelf.cluster.at.registry, self.namespace.name
        images = self.shelf.images
        manifests = programs("operator") / "manifests" / "overlays" / "standalone"
        self.words = {
            "registry.example.com/tensorflow:2.21": images["python"],
            "registry.example.com/pytorch:2.9": images["python"],
            "registry.example.com/s2i/tensorflow:1": images["s2i-python"],
            "registry.example.com": f"{host}/{self.shelf.repository}",
            "https://pypi.example.com/simple": self.shelf.index.url,
            # What is there is not changed: the tests' cluster is raised by it.
            OPERATOR: f"{manifests} --force-conflicts --dry-run=server",
            "team-a": name,
            "REGISTRY/": f"{host}/{self.shelf.repository}/",
            "VERSION": "1",
            '"8Gi"': '"1Gi"',  # all the memory that a small node has
        }
        """What stands for what, in blocks of the documentation. The first that fits is taken."""

    def filled(self, text: str) -> str:
        """A block as a reader would change it for this cluster."""
        pattern = "|".join(re.escape(word) for word in self.words)
        return re.sub(pattern, lambda found: self.words[found[0]], text)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of ada's kernels and terminals."""
        cluster, index = self.shelf.cluster, self.shelf.index
        return {
            **IN_PODS,
            "KUBECONFIG": str(self._kubeconfig()),
            "CIAO_PLAIN_REGISTRIES": cluster.at.registry,
            "CIAO_CPU_REQUEST": "10m",
            "CIAO_KANIKO_IMAGE": cluster.image("kaniko"),
            "DOCKER_CONFIG": str(self._signed_in()),
            "PIP_INDEX_URL": index.url,
            "PIP_TRUSTED_HOST": index.host,
            "PASSWORD": "a-password",
        }

    def _signed_in(self) -> Path:
        """What `docker login` stores: so ada needs no right to read Secrets."""
        entry = base64.b64encode(b"ada:a-password").decode()
        auths = {"auths": {self.shelf.cluster.at.registry: {"auth": entry}}}
        (self.folder / "config.json").write_text(json.dumps(auths))
        return self.folder

    def _kubeconfig(self) -> Path:
        """Ada's, who is of the groups that docs/admin.md gives rights to; made once."""
        file, at, team = self.folder / "kubeconfig", self.shelf.cluster.at, self.namespace.name
        if file.exists():
            return file
        certificates.sign(at, team, f"/O={team}/O={team}-builders/CN=ada")
        certificates.write_kubeconfig(at, file, team)
        for ending in ("key", "crt"):
            (at.pki / f"{team}.{ending}").unlink()
        content = json.loads(file.read_text())
        content["contexts"][0]["context"]["namespace"] = team
        content["contexts"].append({**content["contexts"][0], "name": "staging"})
        file.write_text(json.dumps(content))
        return file
