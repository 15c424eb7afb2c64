"""A webhook that does not answer is one sentence, and passes by waiting."""

from __future__ import annotations

import json

import pytest

from ciao_kernel.kube import responses
from ciao_kernel.kube.webhooks import silent_webhook

pytestmark = pytest.mark.stands_for("oldest")

NAME = "validator.pytorchjob.training-operator.kubeflow.org"
POST = (
    'failed to call webhook: Post "https://training-operator.kubeflow.svc:443/'
    'validate-kubeflow-org-v1-pytorchjob?timeout=10s": '
)


def raw(why: str, name: str = NAME) -> str:
    return f'Internal error occurred: failed calling webhook "{name}": {why}'


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        (f"{POST}dial tcp 10.96.18.4:443: connect: connection refused", "connection refused."),
        (f'{POST}no endpoints available for service "x"', "no endpoints available."),
        (f"{POST}context deadline exceeded", "no answer in time."),
        (f"{POST}dial tcp 10.96.18.4:443: i/o timeout", "no answer in time."),
        (f"{POST}net/http: request canceled (Client.Timeout exceeded)", "no answer in time."),
    ],
)
def test_the_operators_webhook_is_named_with_the_remedy(why: str, cause: str) -> None:
    data = json.dumps({"kind": "Status", "reason": "InternalError", "message": raw(why)})
    error = responses.refused(500, data, "/x")
    assert error.message == (
        f"the training operator's webhook ({NAME}) does not answer, and the cluster accepts "
        f"nothing without it: {cause}"
    )
    assert error.hint.startswith("The operator may just be starting: try again")
    assert "the service training-operator: `kubectl get pods,endpoints -n kubeflow`." in error.hint
    assert responses.passes(error)


def test_another_webhook_is_named_too() -> None:
    told = silent_webhook(raw('Post "https://10.0.0.5/x": connection refused', "a.example.com"))
    assert told is not None
    assert told[0].startswith("the webhook a.example.com does not answer,")
    assert told[1] == (
        "It may just be starting: try again in a minute. "
        "If this stays, ask the administrator of the cluster."
    )


@pytest.mark.parametrize(
    "message",
    [
        "",
        raw(f"{POST}x509: certificate signed by unknown authority"),
        'admission webhook "a" denied the request: connection refused is no name',
        "etcdserver: request timed out, deadline exceeded",
    ],
)
def test_other_words_stay_the_servers(message: str) -> None:
    assert silent_webhook(message) is None
