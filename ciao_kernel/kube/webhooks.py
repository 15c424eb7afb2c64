"""Describes a webhook that the API server could not call: one sentence instead of Go's errors.

The server's text is made by apiserver/pkg/admission/plugin/webhook (``errors/statuserror.go``,
``validating/dispatcher.go``) and by Go's ``net`` package below it.
"""

from __future__ import annotations

import re

_FAILED = re.compile(r'failed calling webhook "(?P<name>[\w.-]{1,253})": (?P<why>.*)', re.DOTALL)
_SERVICE = re.compile(r'"https://(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc[:/.]')
_CAUSES = (
    "connection refused",
    "no endpoints available",
    "deadline exceeded",
    "Client.Timeout exceeded",
    "i/o timeout",
    "no route to host",
    "connection reset by peer",
)
"""Parts of the text if nothing answers. Other causes, such as a certificate, are shown as told."""
_OPERATOR = ".training-operator.kubeflow.org"
"""Suffix of the training operator's webhooks (manifests/base/webhook)."""


def silent_webhook(message: str) -> tuple[str, str] | None:
    """Return a sentence and a hint; None if the message is not about a webhook without an answer.

    Args:
        message: The message of the API server's answer.
    """
    found = _FAILED.search(message)
    cause = next((cause for cause in _CAUSES if found and cause in found["why"]), None)
    if found is None or cause is None:
        return None
    name = found["name"]
    which = f"the webhook {name}"
    if name.endswith(_OPERATOR):
        which = f"the training operator's webhook ({name})"
    cause = "no answer in time" if "exceeded" in cause or "timeout" in cause else cause
    hint = "The operator may just be starting: try again in a minute."
    if service := _SERVICE.search(found["why"]):
        hint += (
            f" If this stays, an administrator checks the service {service['service']}: "
            f"`kubectl get pods,endpoints -n {service['namespace']}`."
        )
    else:
        hint += " If this stays, ask the administrator of the cluster."
    text = f"{which} does not answer, and the cluster accepts nothing without it: {cause}."
    return text, hint if name.endswith(_OPERATOR) else hint.replace("The operator", "It")
