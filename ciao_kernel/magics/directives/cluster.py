"""Directives that apply only on a cluster, and the value types that only they use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import one_word, pairs, quote, quote_pairs, words
from ciao_kernel.model import ApiName, RestartPolicy, SuccessPolicy

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# Host, path, tag and digest as in the OCI distribution specification; less strict for the host.
# A first part without a dot and a port is no host (but localhost is), and has no capital letters.
_IMAGE = re.compile(
    r"(((?=[^/.:]*[.:]|localhost/)[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:\d+)?/)?"
    r"[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_OF_PODS = frozenset(
    {
        "image", "envsecret", "serviceAccount", "imagePullSecret", "nodeSelector", "toleration",
        "priorityClass", "labels", "annotations", "restartPolicy", "podPatch",
    }
)  # fmt: skip
"""Directives for each pod; the others are for the job as a whole."""
_TOLERATION = re.compile(
    r"[A-Za-z0-9][-A-Za-z0-9_./]*(=([A-Za-z0-9][-A-Za-z0-9_.]*)?)?"
    r"(:(NoSchedule|PreferNoSchedule|NoExecute))?"
)
_NO_TAINT_KEYS = frozenset(
    ("key", "operator", "value", "effect", "noschedule", "prefernoschedule", "noexecute")
)
"""Fields of a toleration in YAML, and the effects: a word without an effect is in that notation."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of an object in the cluster."""

    expected: str = "the name of a Kubernetes object (lower-case letters, digits, dashes)"

    def parse(self, text: str) -> str:
        """Check the form (RFC 1123 subdomain)."""
        word = one_word(text, self.expected)
        if not _NAME.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Names:
    """Names of objects, separated by spaces."""

    expected: str = "names of Kubernetes objects, separated by spaces"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word."""
        found = words(text)
        if not found or not all(_NAME.fullmatch(word) for word in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(value)


@dataclass(frozen=True, slots=True)
class ImageName:
    """A container image as a registry names it."""

    expected: str = "an image such as registry.example.com/team/tensorflow:2.21"

    def parse(self, text: str) -> str:
        """Check the form, because only the node would notice an error such as a capital letter."""
        word = one_word(text, self.expected)
        if len(word) > 500 or not _IMAGE.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Labels or annotations: ``key=value``, separated by spaces.

    Args:
        labels: Check the form of values; values of annotations may be any text.
    """

    labels: bool = True
    expected: str = "key=value, quoted as in a shell (several separated by spaces)"

    def parse(self, text: str) -> tuple[tuple[str, str], ...]:
        """Split into words, and each word at its first ``=``."""
        found = [word.partition("=") for word in pairs(text)]
        if not found or not all(equals and _KEY.fullmatch(key) for key, equals, _ in found):
            raise ValueError(self.expected)
        if self.labels and not all(_LABEL.fullmatch(value) for _, _, value in found):
            raise ValueError(
                f"{self.expected}; a value has at most 63 letters, digits, dashes, dots and "
                "underscores"
            )
        return tuple((key, value) for key, _, value in found)

    def render(self, value: tuple[tuple[str, str], ...]) -> str:
        """Quote each pair as one word."""
        return quote_pairs(value)


@dataclass(frozen=True, slots=True)
class Tolerations:
    """Tolerated taints, in the notation of ``kubectl taint``."""

    expected: str = "taints such as gpu=yes:NoSchedule, spot:NoExecute or dedicated"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word."""
        found = words(text)
        if not found or not all(_TOLERATION.fullmatch(word) for word in found):
            raise ValueError(self.expected)
        keys = (word.partition("=")[0].lower() for word in found if ":" not in word)
        if not _NO_TAINT_KEYS.isdisjoint(keys):
            raise ValueError(f"each taint as one word, KEY=VALUE:EFFECT: {self.expected}")
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(map(quote, value))


def _api_of(kind: str) -> str:
    """Return the API that has a kind of job, such as TFJob; "" for any other word."""
    word = kind.lower()
    if word in ("trainjob", "indexedjob"):
        return ApiName.TRAINER if word == "trainjob" else ApiName.JOB
    return ApiName.V1 if word.endswith("job") else ""


def directives() -> list[Directive]:
    """Return the entries of the table, each for a field of ``ClusterSpec``."""
    policies = tuple(policy.value for policy in RestartPolicy)
    restart = value_types.Choice(lambda: policies, RestartPolicy)
    ends = tuple(policy.value for policy in SuccessPolicy)
    success = value_types.Choice(lambda: ends, SuccessPolicy)
    apis = tuple(name.value for name in ApiName)
    api = value_types.Choice(lambda: apis, ApiName, _api_of)
    return [
        Directive(
            name,
            f"cluster.{field}",
            kind,
            text,
            example,
            default=default,
            repeatable=repeatable,
            of_pods=name in _OF_PODS,
        )
        for name, field, kind, text, example, default, repeatable in (
            (
                "image", "image", ImageName(),
                "Image of the replicas; it must contain Python and the framework.",
                "%image=registry.example.com/tensorflow:2.21",
                "the setting images, else the framework's", False,
            ),
            (
                "context", "context", value_types.Word("the name of a context in the kubeconfig"),
                "Context of the kubeconfig.",
                "%context=staging", "the current context", False,
            ),
            (
                "namespace", "namespace", Name(),
                "Namespace of the job.",
                "%namespace=team-a", "the setting, else the context's", False,
            ),
            (
                "envsecret", "env_secrets", Names(),
                "Secrets of the namespace whose keys become environment variables.",
                "%envsecret=wandb s3-credentials", "", True,
            ),
            (
                "serviceAccount", "service_account", Name(),
                "Service account of the replicas.",
                "%serviceAccount=trainer", "the namespace's default, without its token", False,
            ),
            (
                "imagePullSecret", "pull_secrets", Names(),
                "Secrets of the namespace that nodes use to pull the image.",
                "%imagePullSecret=registry", "", True,
            ),
            (
                "nodeSelector", "node_selector", KeyValues(),
                "Labels that a node must have to run the replicas.",
                "%nodeSelector=disk=ssd zone=a", "", True,
            ),
            (
                "toleration", "tolerations", Tolerations(),
                "Taints of nodes that the replicas tolerate.",
                "%toleration=gpu=yes:NoSchedule", "", True,
            ),
            (
                "priorityClass", "priority_class", Name(),
                "Priority class of the replicas.",
                "%priorityClass=low", "", False,
            ),
            (
                "labels", "labels", KeyValues(),
                "Labels of the job and its pods.",
                "%labels=team=vision", "", True,
            ),
            (
                "annotations", "annotations", KeyValues(labels=False),
                "Annotations of the job and its pods.",
                "%annotations=note='second try'", "", True,
            ),
            (
                "restartPolicy", "restart_policy", restart,
                "Policy for restarting a replica that fails.",
                "%restartPolicy=OnFailure", "Never", False,
            ),
            (
                "backoffLimit", "backoff_limit", numeric_types.Count(0, 1000),
                "Restart by %restartPolicy that fails the job, all replicas counted: 3 allows two.",
                "%backoffLimit=3", "", False,
            ),
            (
                "ttl", "ttl", numeric_types.Duration(),
                "Time after which a finished job is deleted with its pods and logs (no TrainJob, "
                "no MPIJob of mpi-operator: `ciao delete --finished --older 7d` removes those).",
                "%ttl=1h", "the setting: 1d", False,
            ),
            (
                "successPolicy", "success_policy", success,
                "TensorFlow replicas that must succeed, on a cluster: worker-0, or all workers. "
                "With a chief, which decides alone, and on this machine it has no effect.",
                "%successPolicy=allWorkers", "worker0", False,
            ),
            (
                "api", "api", api,
                "Kind of object that runs the job: v1 is a kind of the training operator, "
                "trainer a TrainJob of Kubeflow Trainer, job an Indexed Job of Kubernetes; auto is "
                "the first of these that the cluster serves and the user may create.",
                "%api=job", "the setting: auto", False,
            ),
            (
                "queue", "queue", Name(),
                "Queue of Kueue that admits the job as a whole: a LocalQueue of the namespace.",
                "%queue=team", "the setting, else the namespace's default queue", False,
            ),
            (
                "priority", "queue_priority", Name(),
                "Priority of the job in its queue: a WorkloadPriorityClass of Kueue.",
                "%queue=team;%priority=high", "", False,
            ),
            (
                "podPatch", "pod_patch",
                value_types.Word(
                    "a YAML file next to your code", value_types.Suggestions.FILES
                ),
                "YAML file with metadata and spec that is merged into each pod template, as "
                "kubectl patch does it. A last resort, for fields without a directive.",
                "%podPatch=patch.yaml", "", False,
            ),
        )
    ]  # fmt: skip
