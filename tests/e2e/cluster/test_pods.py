"""What every cluster does, and ciao relies on: names, logs, exec, ports."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until

pytestmark = pytest.mark.second("rig")


def pod(namespace: Namespace, name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": namespace.cluster.image("tools"), "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 8000}], **spec},
    }


SERVER = ["python3", "-m", "http.server", "8000"]


def test_a_headless_services_name_is_its_pods_address(namespace: Namespace) -> None:
    namespace.create_objects(
        service("web", clusterIP="None"),
        pod(namespace, "web", SERVER),
        pod(namespace, "asking", ["sleep", "600"]),
    )
    namespace.wait_for_pod("web", "Running")
    namespace.wait_for_pod("asking", "Running")
    address = namespace.get("pod/web")["status"]["podIP"]
    names = ("web", f"web.{namespace.name}.svc", f"web.{namespace.name}.svc.cluster.local")
    for name in names:
        until(
            lambda name=name: (
                address
                in namespace.kubectl("exec", "asking", "--", "sh", "-c", f"nslookup {name} || true")
            ),
            f"{name} to be {address}",
            60,
        )


def test_a_services_address_reaches_its_pod(namespace: Namespace) -> None:
    fetch = ["sh", "-c", "until busybox wget -qO- http://web:8000/; do sleep 0.2; done"]
    namespace.create_objects(
        service("web"), pod(namespace, "web", SERVER), pod(namespace, "asking", fetch)
    )
    until(lambda: "Directory listing" in namespace.log_text(), "the page", 60)


def test_exec_runs_a_program_and_passes_its_exit_code_on(namespace: Namespace) -> None:
    namespace.create_objects(pod(namespace, "busy", ["sleep", "600"]))
    namespace.wait_for_pod("busy", "Running")
    assert namespace.kubectl("exec", "busy", "--", "echo", "a", "b") == "a b\n"
    command = namespace.cluster.kubectl_argv(
        "-n", namespace.name, "exec", "busy", "--", "sh", "-c", "exit 7"
    )
    ended = subprocess.run(
        command, env=namespace.cluster.environment, capture_output=True, check=False
    )
    assert ended.returncode == 7


def test_port_forward_reaches_a_pod_from_this_machine(namespace: Namespace) -> None:
    server = pod(namespace, "web", SERVER)
    server["spec"]["containers"][0]["readinessProbe"] = {
        "httpGet": {"path": "/", "port": 8000},
        "periodSeconds": 1,
    }
    namespace.create_objects(server)
    # kubectl ends the forwarding at the first connection that the pod refuses, so it
    # starts once the server listens: a running container is not enough.
    namespace.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    command = namespace.cluster.kubectl_argv(
        "-n", namespace.name, "port-forward", "pod/web", ":8000"
    )
    forward = subprocess.Popen(
        command, env=namespace.cluster.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert forward.stdout
        said = re.match(r"Forwarding from 127.0.0.1:(\d+) ->", forward.stdout.readline())
        assert said
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        page = opener.open(f"http://127.0.0.1:{said[1]}/", timeout=30).read().decode()
        assert "Directory listing" in page
    finally:
        forward.terminate()
        forward.wait(60)


def test_the_log_of_a_containers_previous_run_is_kept(namespace: Namespace) -> None:
    # The second run stays: the kubelet keeps no more than one that has ended.
    script = (
        "echo this is $HOSTNAME at $(date +%s%N); mkdir /kept/once 2>/dev/null && exit 3; sleep 600"
    )
    kept = {"name": "kept", "emptyDir": {}}
    again = pod(namespace, "again", ["sh", "-c", script], restartPolicy="Always", volumes=[kept])
    again["spec"]["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    namespace.create_objects(again)

    def restarted() -> bool:
        status = namespace.get("pod/again")["status"].get("containerStatuses", [{}])[0]
        return bool(status.get("restartCount", 0) >= 1)

    until(restarted, "a restart", 60)
    previous = namespace.kubectl("logs", "again", "--previous")
    until(lambda: namespace.kubectl("logs", "again"), "the present log", 30)
    assert previous.startswith("this is again at ")
    assert previous != namespace.kubectl("logs", "again")


def test_pods_reach_each_other_and_the_node_but_nothing_else(namespace: Namespace) -> None:
    namespace.create_objects(pod(namespace, "web", SERVER))
    namespace.wait_for_pod("web", "Running")
    status = namespace.get("pod/web")["status"]
    web, node = status["podIP"], status["hostIP"]
    # The last address is one of those kept for documentation (RFC 5737): nobody has it.
    script = (
        f"exec 2>&1; until busybox nc -w 5 {web} 8000 </dev/null; do sleep 0.2; done\n"
        f"echo reaches {web}\n"
        f"busybox nc -w 5 {node} 10250 </dev/null && echo reaches {node}\n"
        "busybox nc -w 5 192.0.2.1 80 </dev/null || echo does not reach 192.0.2.1\n"
    )
    namespace.create_objects(pod(namespace, "asking", ["sh", "-c", script], restartPolicy="Never"))
    namespace.wait_for_pod("asking", "Succeeded", 120)
    log = namespace.kubectl("logs", "asking")
    for end in (f"reaches {web}", f"reaches {node}", "does not reach 192.0.2.1"):
        assert end in log.splitlines(), log
