"""The cluster as those see it who use it: raise, lower, look, and do harm on purpose."""

import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import (
    addons,
    build,
    certificates,
    extras,
    ground,
    images,
    operators,
    recipes,
    trainer,
)
from tests.cluster.api import Api, api_of
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.extras import EXTRAS, Extra
from tests.cluster.layout import Layout, cache, layout
from tests.cluster.node import Node
from tests.cluster.parts import ENVIRONMENT, Part, parts
from tests.cluster.programs import programs
from tests.cluster.store import lock, sweep
from tests.cluster.waiting import until


class Cluster:
    """One cluster, running or not.

    Args:
        at: where it is, or would be.
    """

    def __init__(self, at: Layout | None = None) -> None:
        self.at = at or layout()
        self.node = Node(self.at)
        self.parts: Mapping[str, Part] = parts(self.at)

    def up(self, names: Iterable[str] = ()) -> None:
        """Raise it; or, if it is up, start again what does not run. A no-op if all is well.

        Args:
            names: of extras that it shall have; any other comes when somebody asks for it.

        Raises:
            ClusterError: with the reason; a cluster that was not up is gone then.
        """
        asked = extras.find(names)
        with lock():
            if self.node.pid is not None:
                self._mend()
                self._bring(asked)
                return
            self._build(asked)
            self.node.stop()  # the folder that a crash of the machine left
            print("==> raising it", flush=True)
            try:
                self._raise(asked)
            except BaseException:
                self._keep_logs()
                self.node.stop()
                raise

    def build(self, names: Iterable[str] = ()) -> None:
        """Put what it is made of into the cache, with these extras; leave it down if it is down."""
        asked = extras.find(names)
        with lock():
            self._build(asked)

    def bring(self, *names: str) -> None:
        """Have extras in the cache and in the running cluster, built by whoever is first.

        Costs next to nothing where they are.

        Raises:
            ClusterError: one cannot be built; names the log.
        """
        if missing := [extra for extra in extras.find(names) if not self._has(extra)]:
            with lock():
                self._bring(missing)

    def _has(self, extra: Extra) -> bool:
        return extra.ready() and (self.node.pid is None or not self._absent(extra))

    def _absent(self, extra: Extra) -> list[recipes.Image]:
        return [image for image in extra.images if not images.written(image, self._storage)]

    def _bring(self, asked: Sequence[Extra]) -> None:
        if missing := [extra for extra in asked if not extra.ready()]:
            print("==> building what some tests need (the first time: minutes)", flush=True)
            build.everything(missing, node=False)
        if self.node.pid is None:
            return
        for extra in asked:
            absent = self._absent(extra)
            for image in absent:
                images.write(image, self._storage)
            if absent:  # unpacked now, and not while a test waits for its pod
                build.pull(self.node, absent)

    def _build(self, asked: Sequence[Extra]) -> None:
        built = build.ready(asked)
        if self.node.pid is None:
            ground.check(self.at, building=not built)
        sweep()
        if not built:
            print("==> building what the cluster is made of (the first time: minutes)", flush=True)
            build.everything(asked)

    def _raise(self, asked: Sequence[Extra]) -> None:
        build.prepare(self.at, [image for extra in asked for image in extra.images])
        with ThreadPoolExecutor() as pool:
            # Links instead of copies: what containerd has unpacked is only ever read.
            copied = pool.submit(
                run,
                ["cp", "-a", "--link", build.store(asked) / "root", self.at.folder / "containerd"],
            )
            certificates.issue(self.at)
            (self.at.folder / "etc" / "pki").mkdir()
            copied.result()
        # containerd changes its database in place: that one file must be a copy.
        for database in (self.at.folder / "containerd").rglob("*.db"):
            content = database.read_bytes()
            database.unlink()
            database.write_bytes(content)
        mounts = build.mounts(self.at, self.at.folder / "containerd")
        self.node.start(
            build.root(), [*mounts, ["--bind", str(self.at.pki), "/etc/kubernetes/pki"]]
        )
        self._launch([part.name for part in self.parts.values() if part.usual])
        addons.apply(self.at, self.kubectl)
        addons.wait(self.kubectl)

    def _launch(self, names: list[str]) -> None:
        """Start parts, each as soon as those that it needs are well."""
        waiting, well = list(names), {name for name in self.parts if name not in names}
        started: set[str] = set()
        deadline = time.monotonic() + 90
        while waiting:
            for name in [n for n in waiting if n not in started]:
                if well >= set(self.parts[name].after):
                    self.node.launch(name, self.parts[name].argv, ENVIRONMENT)
                    started.add(name)
            for name in [n for n in waiting if n in started and self.parts[n].healthy()]:
                waiting.remove(name)
                well.add(name)
            for name in waiting:
                code = self.node.parts().get(name, {}).get("code")
                if code is not None or time.monotonic() > deadline:
                    ended = f"ended with {code}" if code is not None else "does not answer"
                    raise ClusterError(f"{name} {ended}:\n{self._tail(name)}")
            time.sleep(0.05)

    def _mend(self) -> None:
        running = self.node.parts()
        alive = {name for name, part in running.items() if part["code"] is None}
        for name in alive:
            self.node.send(name, signal.SIGCONT)
        usual = [name for name, part in self.parts.items() if part.usual]
        with ThreadPoolExecutor(len(usual)) as pool:
            well = dict(zip(usual, pool.map(self.well, usual), strict=True))
        broken = [name for name in usual if not well[name]]
        certificates.issue_front(self.at)  # a cluster of an older tree has none
        for name in broken:
            print(f"==> {name} does not do its work; starting it again", flush=True)
            if name in alive:
                self._signal(name, signal.SIGKILL)
        self._launch(broken)
        if operators.replaced(self.at):
            print("==> another release of the operator is there; putting the usual one back")
            operators.replace(self.at, self.kubectl, recipes.OPERATOR)
        for namespace, name in addons.DEPLOYMENTS:
            if self.replicas(namespace, name) == 0:
                print(f"==> {name} is scaled to nothing; starting it again", flush=True)
                self.kubectl("scale", f"deployment/{name}", "--replicas=1", "-n", namespace)
        addons.wait(self.kubectl)

    def replicas(self, namespace: str, name: str) -> int:
        """Return how many replicas of a Deployment are ready or at least asked for."""
        path = "jsonpath={.spec.replicas}"
        return int(self.kubectl("get", f"deployment/{name}", "-n", namespace, "-o", path))

    def well(self, name: str) -> bool:
        """Tell whether a part runs and does its work; one that is slow is asked again."""

        def runs() -> bool:
            return self.node.parts().get(name, {}).get("code", 1) is None

        return any(runs() and self.parts[name].healthy() for _ in range(3)) and runs()

    def down(self) -> None:
        """Lower it: every process, mount, device, rule and folder of it goes."""
        with lock():
            self.node.stop()

    def trainer(self) -> None:
        """Have Kubeflow Trainer and JobSet in the running cluster, raised by whoever is first."""
        self.bring("trainer")
        if not trainer.raised(self.at):
            with lock():
                if not trainer.raised(self.at):
                    trainer.put(self.at, self.kubectl)

    @property
    def _storage(self) -> Path:
        """The running registry's."""
        return Path(f"/proc/{self.node.pid}/root/var/lib/registry")

    def put(self, image: recipes.Image) -> str:
        """Put an image into the running registry, built by whoever is first; return its name."""
        name = f"{self.at.registry}/{image.name}"
        if images.written(image, self._storage):
            return name
        with lock():
            for layer in reversed(image.layer.stack if image.layer else ()):
                if not images.packed_ready(layer):
                    print(f"==> building the layer {layer.name} of {image.name}", flush=True)
                    images.packed(layer, cache() / "logs" / f"layer-{layer.name}.log")
            images.write(image, self._storage)
        return name

    def run_operator(self, image: recipes.Image) -> None:
        """Let this release of the operator run, with its own kinds and webhooks."""
        operators.replace(self.at, self.kubectl, image)
        addons.wait(self.kubectl)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl as the administrator and return what it printed."""
        return run(self.kubectl_argv(*arguments), text=text, env=self.environment, seconds=150)

    def kubectl_argv(self, *arguments: str) -> list[str]:
        """Return the command line of a kubectl of this cluster's version."""
        return [str(programs("kubernetes") / "kubectl"), *arguments]

    @property
    def api(self) -> Api:
        """The API as the administrator, without a process for each question."""
        return api_of(self.at.kubeconfig, self.kubectl)

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG set, for programs that use the cluster."""
        return os.environ | {"KUBECONFIG": str(self.at.kubeconfig)}

    def image(self, name: str) -> str:
        """Return the full name of an image of recipes.py, by its first word.

        A running cluster has it then: an image of an extra is brought.
        """
        every = (*recipes.IMAGES, *(image for extra in EXTRAS.values() for image in extra.images))
        for image in every:
            if image.name.partition(":")[0] == name:
                if (extra := extras.owner(image)) and self.node.pid is not None:
                    self.bring(extra)
                return f"{self.at.registry}/{image.name}"
        raise LookupError(f"no image is named {name}")

    def tails(self) -> dict[str, str]:
        """Return the end of each part's log, by the part's name."""
        return {name: self._tail(name) for name in self.parts}

    def stop(self, name: str) -> None:
        """Ask a part to end (SIGTERM) and wait until it has."""
        self._signal(name, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Kill a part (SIGKILL) and wait until it is gone."""
        self._signal(name, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """Let a part stand still: connections stay, nobody answers."""
        self.node.send(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a part that stood still go on."""
        self.node.send(name, signal.SIGCONT)

    def start(self, name: str) -> None:
        """Start a part that does not run, and wait until it does its work."""
        if name in EXTRAS:
            self.bring(name)
            for module in EXTRAS[name].modules:
                build.lend(self.at, module)
        self._launch([name])

    def _signal(self, name: str, number: signal.Signals) -> None:
        self.node.send(name, number)
        until(lambda: self.node.parts()[name]["code"] is not None, f"{name} to end", 30)

    def _tail(self, name: str) -> str:
        log = self.at.logs / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
        return "\n".join(f"    {line[:300]}" for line in lines)

    def _keep_logs(self) -> None:
        if self.at.logs.exists():
            kept = cache() / "logs" / "failed"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.at.logs, kept)
            print(f"    logs of the parts: {kept}", flush=True)
