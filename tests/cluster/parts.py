"""The processes of the cluster: how each is started, and how one sees that it is well."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import Layout
from tests.cluster.sockets import connect

PKI = "/etc/kubernetes/pki"
BIN = "/opt/ciao/kubernetes"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    # Go looks for garbage less often: less work, for some hundred megabytes.
    "GOGC": "400",
}


@dataclass(frozen=True)
class Part:
    """One process of the cluster.

    Args:
        name: what users call it; also the name of its log.
        argv: its command line on the node.
        healthy: tells whether it does its work; asks it over the network, never waits long.
        after: parts that must be healthy before it is started.
        listens: where, for those who read `status`.
        usual: whether `up` starts it.
    """

    name: str
    argv: tuple[str, ...]
    healthy: Callable[[], bool]
    after: tuple[str, ...] = ()
    listens: str = ""
    usual: bool = True


def parts(at: Layout) -> dict[str, Part]:
    """Return all parts of a cluster by name, in the order in which they depend on each other."""
    ip = at.address
    found = [
        Part(
            "etcd",
            (
                "etcd", "--name=ciao", "--data-dir=/var/lib/etcd/data",
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                f"--listen-metrics-urls=http://{ip}:2381",
                # Its data lies in memory and goes with the node: there is no disk to wait for.
                "--unsafe-no-fsync", "--quota-backend-bytes=2147483648", "--log-level=warn",
            ),
            _http(f"http://{ip}:2381/health"),
            listens="127.0.0.1:2379 on the node",
        ),
        Part(
            "registry",
            ("docker-registry", "serve", "/etc/kubernetes/registry.json"),
            _http(f"http://{ip}:5000/v2/"),
            listens=f"http://{at.registry}",
        ),
        Part(
            "containerd",
            ("containerd", "--config=/etc/kubernetes/containerd.toml", "--log-level=info"),
            lambda: _connects(at.control / "containerd.sock"),
            listens="/control/containerd.sock on the node",
        ),
        Part(
            "apiserver",
            (
                f"{BIN}/kube-apiserver", f"--bind-address={ip}", "--secure-port=6443",
                f"--advertise-address={ip}", "--etcd-servers=http://127.0.0.1:2379",
                f"--service-cluster-ip-range={at.services}", "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction,ResourceQuota,LimitRanger",
                "--allow-privileged", f"--client-ca-file={PKI}/ca.crt",
                f"--tls-cert-file={PKI}/apiserver.crt",
                f"--tls-private-key-file={PKI}/apiserver.key",
                f"--kubelet-client-certificate={PKI}/kubelet-client.crt",
                f"--kubelet-client-key={PKI}/kubelet-client.key",
                f"--kubelet-certificate-authority={PKI}/ca.crt",
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-account-key-file={PKI}/service-account.pub",
                f"--service-account-signing-key-file={PKI}/service-account.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                # For servers of further APIs, such as a metrics server.
                f"--requestheader-client-ca-file={PKI}/front-ca.crt",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
                f"--proxy-client-cert-file={PKI}/front.crt",
                f"--proxy-client-key-file={PKI}/front.key",
                # Without it an end by SIGTERM waits a minute for watches that stay open.
                "--shutdown-watch-termination-grace-period=2s",
            ),
            _http(f"https://{ip}:6443/readyz"),
            after=("etcd",),
            listens=at.server,
        ),
        Part(
            "controller-manager",
            (
                f"{BIN}/kube-controller-manager", f"--bind-address={ip}",
                f"--kubeconfig={PKI}/controller-manager.kubeconfig",
                f"--root-ca-file={PKI}/ca.crt",
                f"--service-account-private-key-file={PKI}/service-account.key",
                "--use-service-account-credentials", "--leader-elect=false",
            ),
            _http(f"https://{ip}:10257/healthz"),
            after=("apiserver",),
            listens=f"https://{ip}:10257",
        ),
        Part(
            "scheduler",
            (
                f"{BIN}/kube-scheduler", f"--bind-address={ip}",
                f"--kubeconfig={PKI}/scheduler.kubeconfig", "--leader-elect=false",
            ),
            _http(f"https://{ip}:10259/healthz"),
            after=("apiserver",),
            listens=f"https://{ip}:10259",
        ),
        Part(
            "kubelet",
            (
                f"{BIN}/kubelet", "--config=/etc/kubernetes/kubelet.json",
                f"--kubeconfig={PKI}/kubelet.kubeconfig", f"--node-ip={ip}",
                f"--hostname-override={at.node}",
            ),
            _http(f"http://{ip}:10248/healthz"),
            after=("apiserver", "containerd"),
            listens=f"https://{ip}:10250",
        ),
        Part(
            "kube-proxy",
            (
                f"{BIN}/kube-proxy", f"--kubeconfig={PKI}/proxy.kubeconfig",
                "--proxy-mode=iptables", f"--cluster-cidr={at.pods}",
                f"--hostname-override={at.node}", f"--bind-address={ip}",
                f"--healthz-bind-address={ip}:10256",
                # The table's size belongs to the whole machine; a node may not set it.
                "--conntrack-max-per-core=0",
            ),
            _http(f"http://{ip}:10256/healthz"),
            after=("apiserver",),
            listens=f"{ip}:10256",
        ),
        Part(
            "kwok",
            (
                "/opt/ciao/extras/kwok", f"--kubeconfig={PKI}/admin.kubeconfig",
                "--manage-all-nodes=false", "--manage-nodes-with-label-selector=type=kwok",
                "--cidr=10.245.0.0/16", f"--node-ip={ip}", f"--server-address={ip}:10247",
            ),
            _http(f"http://{ip}:10247/healthz"),
            after=("apiserver",),
            listens=f"http://{ip}:10247",
            usual=False,
        ),
        Part(
            "policies",
            (
                "/opt/ciao/extras/policies", f"--kubeconfig={PKI}/admin.kubeconfig",
                f"--hostname-override={at.node}", f"--service-cluster-ip-range={at.services}",
                f"--health-address={ip}:20244",
            ),
            _http(f"http://{ip}:20244/healthz"),
            after=("apiserver", "kube-proxy"),
            listens=f"{ip}:20244",
            usual=False,
        ),
    ]  # fmt: skip
    return {part.name: part for part in found}


def write_settings(at: Layout, folder: Path) -> None:
    """Write the parts' configuration files into a folder that becomes /etc/kubernetes."""
    _json(folder / "registry.json", {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": "/var/lib/registry"},
            "delete": {"enabled": True},
        },
        "http": {"addr": ":5000"},
    })  # fmt: skip
    (folder / "containerd.toml").write_text(_CONTAINERD.format(registry=at.registry))
    hosts = folder / "certs.d" / at.registry
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(
        f'server = "http://{at.registry}"\n[host."http://{at.registry}"]\n'
        'capabilities = ["pull", "resolve"]\n'
    )
    _json(folder / "cni" / "10-ciao.conflist", {
        "cniVersion": "1.0.0",
        "name": "ciao",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local", "ranges": [[{"subnet": at.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    })  # fmt: skip
    _json(folder / "kubelet.json", {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": at.address,
        "healthzBindAddress": at.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{PKI}/kubelet.crt",
        "tlsPrivateKeyFile": f"{PKI}/kubelet.key",
        "containerRuntimeEndpoint": "unix:///control/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{at.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDNS": [at.dns_service],
        "clusterDomain": at.domain,
        "resolvConf": "/etc/kubernetes/resolv.conf",
        # The disk is the machine's: its fullness is not this node's to act upon.
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": 250,
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    })  # fmt: skip
    (folder / "resolv.conf").write_text("")


# sandbox_image: a pod's first container. restrict_oom_score_adj: without CAP_SYS_RESOURCE a
# container may not get a lower score than containerd's own. discard_unpacked_layers: what is
# unpacked is not kept packed too.
_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
address = "/control/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{registry}/pause:1"
restrict_oom_score_adj = true
max_concurrent_downloads = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
discard_unpacked_layers = true
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/kubernetes/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/kubernetes/certs.d"
"""


def _json(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2))


def _http(url: str) -> Callable[[], bool]:
    # Health is told to everybody, so nobody has to be believed: certificates are not checked.
    context = ssl._create_unverified_context() if url.startswith("https") else None

    def ask() -> bool:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            *([urllib.request.HTTPSHandler(context=context)] if context else []),
        )
        try:
            with opener.open(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:  # URLError is one
            return False

    return ask


def _connects(path: Path) -> bool:
    try:
        connect(path, seconds=2).close()
    except OSError:
        return False
    return True
