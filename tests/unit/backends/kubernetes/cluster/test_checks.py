"""What is known before a job exists: quantities and quotas, rights, the namespace."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.backends.kubernetes.submission import choice, quotas
from ciao_kernel.errors import ClusterFault, NoRoom, Refused, SpecError
from ciao_kernel.kube import quantities
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.kube.client import Object


class Server:
    """A client whose answers a test writes, by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"selfsubjectrulesreviews": {"status": {"resourceRules": [ALL]}}, **answers}
        self.asked: list[str] = []
        self.cache = AnswerCache()

    async def get(self, path: str, body: Object | None = None) -> Any:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        answer = self.answers.get(name, Refused("not found", code=404))
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, Exception):
            raise answer
        return answer

    known = post = get


ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def target(server: Server) -> Target:
    return Target(server, "team")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------- quantities


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"), ("2", "2"), ("1.5Gi", str(3 * 2**29)), ("2e3", "2000"), ("1E", "1e18"),
        ("1Ei", str(2**60)), ("100n", "1e-7"), ("5E2", "500"), (4, "4"), ("0", "0"),
    ],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_writes_it(text: Any, value: str) -> None:
    assert quantities.quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "x", "1.2.3", None, "1Zi", "Gi", [], "--1", "1e"])
def test_what_is_no_quantity_is_none(text: Any) -> None:
    assert quantities.quantity(text) is None


# --------------------------------------------------------------------------------- quotas


def job(workers: int = 2, specs: str = "r", **resources: str) -> Objects:
    asked = {"requests": resources, "limits": resources}
    template = {"spec": {"containers": [{"resources": asked}]}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "spec": {"runPolicy": {}, specs: {"Worker": {"replicas": workers, "template": template}}},
    }
    beside = ({"kind": "ConfigMap"},)
    return Objects(beside, body, "/apis/kubeflow.org/v1/namespaces/team/tfjobs")


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"used": used or {}},
    }


def judge(made: Objects, *items: Any) -> str:
    """The refusal's message, or "" where there is room."""
    server = Server(resourcequotas={"items": list(items)})
    try:
        asyncio.run(quotas.check(target(server), made))
    except SpecError as error:
        return f"%{error.directive} {error.message}"
    return ""


@pytest.mark.parametrize(
    ("hard", "used", "said"),
    [
        ({"limits.cpu": "1"}, {"limits.cpu": "500m"},
         "%cpu the quota q of the namespace team has no room for this job: limits.cpu: the job "
         "asks for 1, and 500m of 1 is used."),
        ({"cpu": "900m"}, {}, "%cpu"),
        ({"requests.memory": "3Gi"}, {"requests.memory": "2Gi"}, "asks for 2Gi, and 2Gi of 3Gi"),
        ({"pods": "5"}, {"pods": "4"}, "%worker"),
        ({"count/tfjobs.kubeflow.org": "1"}, {"count/tfjobs.kubeflow.org": "1"}, "%worker"),
        ({"configmaps": "3"}, {"configmaps": "3"}, "configmaps: the job asks for 1"),
        ({"services": "1"}, {}, "services: the job asks for 2"),
        ({"requests.nvidia.com/gpu": "3"}, {"requests.nvidia.com/gpu": "2"}, "%gpu"),
        ({"limits.cpu": "1", "pods": "10", "secrets": "1"}, {"secrets": "1"}, ""),
        ({"limits.cpu": "garbage"}, {}, ""),
    ],
)  # fmt: skip
def test_a_quota_is_held_against_the_whole_job(
    hard: dict[str, str], used: dict[str, str], said: str
) -> None:
    made = job(cpu="500m", memory="1Gi", **{"nvidia.com/gpu": "1"})
    found = judge(made, quota(hard, used))
    assert said in found
    assert bool(found) == bool(said)


def test_only_kinds_with_services_ask_a_quota_for_services() -> None:
    limits = quota({"services": "1", "count/services": "1"})
    assert "services: the job asks for 2" in judge(job(specs="tfReplicaSpecs"), limits)
    assert judge(job(specs="mpiReplicaSpecs"), limits) == ""
    assert "pods: the job asks for 2" in judge(job(specs="mpiReplicaSpecs"), quota({"pods": "1"}))


def test_a_quota_of_a_scope_is_the_servers_to_judge() -> None:
    assert judge(job(cpu="2"), quota({"limits.cpu": "1"}, scopes=["NotTerminating"])) == ""
    assert judge(job(cpu="2"), None, {"spec": 3}, quota({"limits.cpu": "1"})) != ""


def test_a_quota_counts_each_container_of_a_pod_and_what_is_added_to_it() -> None:
    """A second container, an init container, the namespace's defaults, the runtime's overhead."""
    made = job(workers=2, cpu="500m")
    spec = made.job["spec"]["r"]["Worker"]["template"]["spec"]
    spec |= {"runtimeClassName": "kata", "initContainers": [{}, {"restartPolicy": "Always"}]}
    spec["containers"].append({})
    added = {"type": "Container", "defaultRequest": {"cpu": "100m"}, "default": {"cpu": "1"}}
    server = Server(
        resourcequotas={"items": [quota({"requests.cpu": "1"})]},
        limitranges={"items": [{"spec": {"limits": [added]}}]},
        kata={"overhead": {"podFixed": {"cpu": "50m"}}},
    )
    # 500m and twice 100m, and 50m for the pod itself; two pods.
    with pytest.raises(SpecError, match=r"asks for 1500m, and 0 of 1 is used"):
        asyncio.run(quotas.check(target(server), made))
    del server.answers["limitranges"], server.answers["kata"]
    asyncio.run(quotas.check(target(server), made))  # 1 of 1 is free


def test_who_may_not_look_at_quotas_is_not_stopped() -> None:
    server = Server(selfsubjectrulesreviews={"status": {"resourceRules": []}})
    server.answers["selfsubjectrulesreviews"]["status"]["incomplete"] = False
    asyncio.run(quotas.check(target(server), job()))
    assert "resourcequotas" not in server.asked
    server = Server(resourcequotas=Refused("no", code=403))
    asyncio.run(quotas.check(target(server), job()))


# --------------------------------------------------------------------------------- rights


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> Object:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}


def allowed(right: Right, *rules: Any, **server: Any) -> bool:
    answer = {"status": {"resourceRules": list(rules), "incomplete": False}}
    made = Server(**{"selfsubjectrulesreviews": answer, **server})
    return asyncio.run(rights.allowed(made, "team", right))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (rule("get list", "pods pods/log"), True),
        (rule("get", "*/log"), True),
        (rule("*", "*"), True),
        (rule("list", "pods/log"), False),
        (rule("get", "pods"), False),
        (rule("get", "pods/log", "apps"), False),
        (rule("get", "pods/log", resourceNames=["one"]), False),
        (None, False),
        ({"verbs": None, "apiGroups": "*", "resources": {}}, False),
    ],
)
def test_a_rule_grants_what_kubernetes_says_it_grants(found: Any, may: bool) -> None:
    assert allowed(Right("get", "pods", subresource="log"), found) is may


@pytest.mark.parametrize(("name", "may"), [("push", True), ("other", False), ("", False)])
def test_a_right_may_be_for_one_object_alone(name: str, may: bool) -> None:
    right = Right("get", "secrets", object_name=name)
    assert allowed(right, rule("get", "secrets", resourceNames=["push"])) is may
    assert allowed(right, rule("get", "secrets"))

    def answer(body: Object) -> Object:
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": asked.get("name") == "push"}}

    part = {"status": {"resourceRules": [], "incomplete": True}}
    server = {"selfsubjectrulesreviews": part, "selfsubjectaccessreviews": answer}
    assert allowed(right, **server) is may


def test_a_list_that_is_not_complete_is_asked_about_one_by_one() -> None:
    def answer(body: Object) -> Object:
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": asked["resource"] == "pods"}}

    part = {"status": {"resourceRules": [rule("get", "configmaps")], "incomplete": True}}
    made = Server(selfsubjectrulesreviews=part, selfsubjectaccessreviews=answer)
    wanted = [Right("get", name) for name in ("configmaps", "pods", "secrets")]
    found = asyncio.run(rights.allowed(made, "team", *wanted))  # type: ignore[arg-type]
    assert found == [True, True, False]
    assert made.asked.count("selfsubjectaccessreviews") == 2


def test_who_is_not_known_is_not_told_about_rights() -> None:
    nobody = Refused("Unauthorized", code=401)
    with pytest.raises(Refused):
        allowed(Right("get", "pods"), selfsubjectrulesreviews=nobody)


def test_the_role_is_yaml_that_grants_just_what_is_missing() -> None:
    me = {"status": {"userInfo": {"username": "ada@example.com"}}}
    missing = [
        Right("get", "pods"),
        Right("list", "pods"),
        Right("create", "tfjobs", "kubeflow.org"),
        Right("get", "secrets", object_name="push"),
        Right("list", "secrets"),
    ]
    made = Server(selfsubjectreviews=me)
    role, binding = yaml.safe_load_all(asyncio.run(rights.role(made, "team", missing)))  # type: ignore[arg-type]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["push"],
            "verbs": ["get"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
    ]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "team"
    assert binding["subjects"][0]["name"] == "ada@example.com"
    assert role["metadata"]["name"] == binding["metadata"]["name"] == binding["roleRef"]["name"]


def test_a_role_that_is_applied_takes_nothing_from_an_earlier_one() -> None:
    """``kubectl apply`` replaces the rules and subjects of an object of the same name."""

    def name(user: str, *missing: Right) -> str:
        made = Server(selfsubjectreviews={"status": {"userInfo": {"username": user}}})
        text = asyncio.run(rights.role(made, "team", missing))  # type: ignore[arg-type]
        (found,) = {item["metadata"]["name"] for item in yaml.safe_load_all(text)}
        return str(found)

    pods, jobs = Right("get", "pods"), Right("create", "jobs", "batch")
    assert name("ada", pods, jobs) == name("ada", jobs, pods)
    names = {
        name("ada", pods),
        name("ada", jobs),
        name("ada", pods, jobs),
        name("bob", pods),
        name("system:serviceaccount:team:ada", pods),
        name("", pods),
    }
    assert len(names) == 6


# ------------------------------------------------------------------------------ namespace


def namespace_facts(
    environment: dict[str, str] | None = None, **namespace: Any
) -> checks.NamespaceFacts:
    server = Server(team={"metadata": {}, "status": {"phase": "Active"}, **namespace})
    return asyncio.run(checks.namespace_facts(target(server), environment or {}))


def test_a_namespace_is_taken_as_it_is() -> None:
    assert namespace_facts() == checks.NamespaceFacts()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    assert namespace_facts(metadata={"labels": labels}).restricted
    baseline = {"pod-security.kubernetes.io/enforce": "baseline"}
    assert not namespace_facts(metadata={"labels": baseline}).restricted
    with pytest.raises(ClusterFault, match="is being deleted"):
        namespace_facts(status={"phase": "Terminating"})


@pytest.mark.parametrize(
    ("environment", "goes"),
    [
        ({"KERNEL_ID": "team"}, True),
        ({"KERNEL_ID": "1-2", "KERNEL_POD_NAME": "team"}, True),
        ({"KERNEL_ID": "1-2", "KERNEL_POD_NAME": "ada-1-2", "KERNEL_NAMESPACE": "team"}, False),
        ({"KERNEL_POD_NAME": "team"}, False),
        ({}, False),
    ],
)
def test_a_namespace_that_a_gateway_made_is_known_by_the_kernels_variables(
    environment: dict[str, str], goes: bool
) -> None:
    assert namespace_facts(environment).deleted_with_kernel is goes


def test_a_namespace_that_a_gateway_made_is_known_by_its_labels() -> None:
    labels = {"app": "enterprise-gateway", "component": "kernel", "kernel_id": "1-2"}
    assert namespace_facts(metadata={"labels": labels}).deleted_with_kernel


# -------------------------------------------------------------------------------- refusal


@pytest.mark.parametrize(
    ("words", "code", "kind", "said"),
    [
        ('namespaces "team" not found', 404, ClusterFault, "there is no namespace team"),
        ("unable to create: it is being terminated", 403, ClusterFault, "is being deleted"),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
         403, checks.PodSecurityViolation,
         'in the namespace team: "restricted:latest": runAsNonRoot'),
        ('pods "a" is forbidden: unable to validate against any security context constraint: '
         "[provider restricted-v2: .spec.securityContext.fsGroup: Invalid value: []int64{1000}: "
         "1000 is not an allowed group]", 403, checks.ConstraintViolation,
         "OpenShift refuses this job's pods in the namespace team: [provider restricted-v2: "),
        ("pods: exceeded quota: q", 403, NoRoom, "exceeded quota"),
        ("configmaps: exceeded quota: q", 403, ClusterFault, "exceeded quota"),
        ("something new", 418, ClusterFault, "the cluster refuses this job: something new"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_helps(words: str, code: int, kind: type, said: str) -> None:
    server = Server()
    server.cache.keep("rights", {}, 60)
    error = checks.refusal(Refused(words, code=code), target(server))
    assert isinstance(error, kind)
    assert said in error.message
    assert error.hint
    assert server.cache.get("rights") is None, "they may have changed"


def test_a_group_that_openshift_refuses_can_be_changed_by_a_patch() -> None:
    words = "unable to validate against any security context constraint: [1000 is no group]"
    error = checks.refusal(Refused(words, code=403), target(Server()))
    assert error.hint.startswith("A %podPatch can change")
    assert "`oc describe namespace team`" in error.hint


@pytest.mark.parametrize(
    ("words", "directive"),
    [
        ("must specify memory for: pytorch", "memory"),
        ("must specify limits.memory for: ciao-cpu,pytorch", "memory"),
        ("must specify limits.memory for: a; requests.memory for: a", "memory"),
        ("must specify cpu for: pytorch; memory for: pytorch", "cpu"),
        ("must specify limits.cpu for: a; limits.memory for: a", "cpu"),
    ],
)
def test_a_quota_that_requires_a_request_names_the_directive(words: str, directive: str) -> None:
    said = f'pods "x" is forbidden: failed quota: team: {words}'
    error = checks.refusal(Refused(said, code=403), target(Server()))
    assert isinstance(error, SpecError)
    assert error.directive == directive
    assert "requires %cpu and %memory" in error.hint


@pytest.mark.parametrize(
    "words",
    [
        'pods "x" is forbidden: failed quota: q: must specify requests.ephemeral-storage for: a',
        'Pod "x" is invalid: spec.volumes[1]: Required value: must specify a volume type',
        "admission webhook denied the request: you must specify the label team",
    ],
)
def test_other_things_that_must_be_specified_name_no_directive(words: str) -> None:
    error = checks.refusal(Refused(words, code=403), target(Server()))
    assert isinstance(error, ClusterFault)
    assert "%cpu" not in error.hint


def test_only_a_missing_service_account_is_the_directives_mistake() -> None:
    missing = (
        'pods "x" is forbidden: error looking up service account team/typo: '
        'serviceaccount "typo" not found'
    )
    error = checks.refusal(Refused(missing, code=403), target(Server()))
    assert isinstance(error, SpecError)
    assert error.directive == "serviceAccount"
    user = "system:serviceaccount:hub:notebook"
    for words in (
        f'tfjobs.kubeflow.org is forbidden: User "{user}" cannot create resource "tfjobs"',
        f'admission webhook "x.kyverno.svc" denied the request: only-ci: blocked for {user}',
    ):
        other = checks.refusal(Refused(words, code=403), target(Server()))
        assert isinstance(other, ClusterFault)


@pytest.mark.parametrize(
    ("version", "known"),
    [({"major": "1", "minor": "30+"}, True), ({"major": "1", "minor": "29"}, False), ({}, False)],
)
def test_a_version_is_compared(version: Object, known: bool) -> None:
    assert choice.at_least(version, 1, 30) is known


BARE = (
    'admission webhook "validate.kyverno.svc-fail" denied the request: \n\nprevent-bare-pods:\n'
    "  Bare Pods are not allowed."
)
ONLY_CONTROLLERS = (
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'only' with binding 'only' denied request: "
    "controllers create pods."
)


class Policed(Server):
    """A cluster whose policies refuse pods, by a sentence; "" accepts."""

    def __init__(self, bare: str, owned: str) -> None:
        super().__init__()
        self.bare, self.owned = bare, owned

    async def create(self, path: str, item: Any, *, dry_run: bool) -> Any:
        owners = item["metadata"].get("ownerReferences", [])
        if refusal := self.owned if owners else self.bare:
            raise Refused(refusal, code=403)
        assert all((one["kind"], one["controller"]) == ("TFJob", True) for one in owners)
        return item


def tried(bare: str, owned: str) -> str:
    """Return what a dry run says of a job's pods."""
    return tried_all(Policed(bare, owned), [])


def tried_all(server: Server, items: list[tuple[str, dict[str, Any]]]) -> str:
    """Return what a dry run says of these objects, and of a job's pods."""
    pod = {"metadata": {"name": "a-try"}, "spec": {}}
    owner = job().job | {"kind": "TFJob", "metadata": {"name": "a"}}
    return asyncio.run(checks.dry_run(target(server), items, [pod], owner))


def test_pods_that_only_a_controller_may_create_are_accepted() -> None:
    assert tried("", "not asked for") == ""
    assert tried(BARE, "") == ""


def test_a_policy_that_refuses_pods_in_a_trial_is_told_and_refuses_no_job() -> None:
    assert tried(BARE, ONLY_CONTROLLERS) == (
        'a policy of the cluster refuses the pods of this job in a trial: pods "a" is forbidden: '
        "ValidatingAdmissionPolicy 'only' with binding 'only' denied request: controllers create "
        "pods. If the policy also refuses them from the job's controller, the job cannot start."
    )


def test_a_webhook_that_allows_no_trial_refuses_no_job() -> None:
    """Its registration, made before Kubernetes 1.22, does not say that it has no side effects."""
    refusal = 'admission webhook "inject.example.com" does not support dry run'
    said = f"the cluster cannot try this job before it is created: {refusal}."
    assert tried(refusal, "") == said
    assert tried(BARE, refusal) == said


def test_a_policy_that_refuses_pods_is_more_than_an_object_without_a_trial() -> None:
    class Mixed(Policed):
        async def create(self, path: str, item: Any, *, dry_run: bool) -> Any:
            if path == "/maps":
                raise Refused('webhook "a" does not support dry run', code=400)
            return await super().create(path, item, dry_run=dry_run)

    maps = [("/maps", {"metadata": {"name": "a"}})]
    assert "cannot try this job" in tried_all(Mixed("", ""), maps)
    assert tried_all(Mixed(BARE, ONLY_CONTROLLERS), maps).startswith("a policy of the cluster")


@pytest.mark.parametrize(
    "certain",
    [
        'pods "a" is forbidden: exceeded quota: small',
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": root',
        'admission webhook "a" denied the request: violates PodSecurity "restricted:latest": root',
    ],
)
def test_a_quota_and_pod_security_refuse_a_job_by_its_pods(certain: str) -> None:
    for words in ((certain, ""), (BARE, certain)):
        with pytest.raises((SpecError, ClusterFault)):
            tried(*words)
