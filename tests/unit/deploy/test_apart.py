"""Rights in deploy/: what kernels may, and where, and what servers may.

No server's Secret is in the namespace of jobs: whoever may create jobs there could read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"


def of(file: str, kind: str = "") -> Any:
    """A file of deploy/; of several objects the one of a kind."""
    found = list(yaml.safe_load_all((DEPLOY / file).read_text()))
    (one,) = [each for each in found if not kind or each["kind"] == kind]
    return one


def verbs(rules: Iterable[Any]) -> set[tuple[str, str, str]]:
    """Each verb of some rules, with its group and its resource."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_kernels_may_run_indexed_jobs_besides_the_operators() -> None:
    """Cells of %framework=python and custom are Indexed Jobs where the operator runs too."""
    (patch,) = of("rbac/kustomization.yaml")["patches"]
    changes = yaml.safe_load(patch["patch"])
    assert {(one["op"], one["path"]) for one in changes} == {("add", "/rules/-")}
    user, jobs = (of(f"rbac/{name}.yaml") for name in ("role", "jobs-role"))
    assert patch["target"] == {"kind": user["kind"], "name": user["metadata"]["name"]}
    added = verbs(one["value"] for one in changes)
    assert added == verbs(jobs["rules"]) - verbs(user["rules"])


@pytest.mark.parametrize(
    "folder", ["enterprise-gateway/account", "enterprise-gateway/namespaces", "jupyterhub/jobs"]
)
def test_kernels_have_that_role_in_each_deployment(folder: str) -> None:
    assert "../../rbac" in of(f"{folder}/kustomization.yaml")["resources"]


def test_the_hubs_values_send_jobs_where_its_users_have_rights() -> None:
    user = of("jupyterhub/values.yaml")["singleuser"]
    jobs = of("jupyterhub/jobs/kustomization.yaml")["namespace"]
    (subject,) = of("jupyterhub/jobs/binding.yaml")["subjects"]
    assert user["extraEnv"]["CIAO_NAMESPACE"] == jobs
    assert subject["name"] == user["serviceAccountName"]
    assert subject["namespace"] != jobs


def test_a_jupyter_server_starts_kernels_where_both_have_rights() -> None:
    server = of("gateway-provisioners/jupyter.yaml", "Deployment")["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in server["containers"][0]["env"]}
    home = of("gateway-provisioners/kustomization.yaml")["namespace"]
    kernels = of("gateway-provisioners/team/kustomization.yaml")["namespace"]
    (subject,) = of("gateway-provisioners/team/rights.yaml", "RoleBinding")["subjects"]
    assert env["KERNEL_NAMESPACE"] == kernels != home
    assert (subject["name"], subject["namespace"]) == (server["serviceAccountName"], home)


def test_the_policies_and_the_gateway_name_the_same_role() -> None:
    folder = "enterprise-gateway/namespaces"
    policies = (DEPLOY / folder / "policy.yaml").read_text()
    (bound,) = of(f"{folder}/rights.yaml", "ClusterRole")["rules"][-1]["resourceNames"]
    assert f"object.roleRef.name == '{bound}'" in policies
    assert f"value: {bound}\n" in (DEPLOY / folder / "kustomization.yaml").read_text()
    assert of("enterprise-gateway/gateway/gateway.yaml", "ServiceAccount")["metadata"] == {
        "name": "enterprise-gateway"
    }
    assert policies.count("'^system:serviceaccount:[^:]+:enterprise-gateway$'") == 3


def test_every_policy_is_in_force() -> None:
    found = (DEPLOY / "enterprise-gateway/namespaces/policy.yaml").read_text()
    objects = list(yaml.safe_load_all(found))
    policies = {
        one["metadata"]["name"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"
    }
    bindings = [one["spec"] for one in objects if one["kind"].endswith("Binding")]
    assert {one["policyName"] for one in bindings} == policies
    assert all(one["validationActions"] == ["Deny"] for one in bindings)
