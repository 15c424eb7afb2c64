"""A real one-node Kubernetes for the tests, raised on a bare machine.

`python -m tests.cluster up` builds what it needs into a cache, makes a node out of Linux
namespaces and starts etcd, the control plane, the kubelet, containerd, a registry and the
training operator in it. docs/cluster.md tells how it is used and what it consists of. Standard
library only: it runs before anything is installed.
"""
