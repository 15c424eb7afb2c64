"""A user of a kubeconfig who acts as somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.kube import impersonation

pytestmark = pytest.mark.stands_for("oldest")


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ({}, []),
        ({"as": "", "as-groups": [], "as-user-extra": {}}, []),
        ({"as": "ada"}, [("Impersonate-User", "ada")]),
        (
            {"as": "ada", "as-uid": "7", "as-groups": ["a", "b"]},
            [("Impersonate-User", "ada"), ("Impersonate-Uid", "7"), ("Impersonate-Group", "a"),
             ("Impersonate-Group", "b")],
        ),
        (
            {"as": "ada", "as-user-extra": {"scopes": ["view", "edit"], "acme.com/project": ["x"],
                                            "50%: ä": ["y"], "none": []}},
            [("Impersonate-User", "ada"), ("Impersonate-Extra-scopes", "view"),
             ("Impersonate-Extra-scopes", "edit"), ("Impersonate-Extra-acme.com%2Fproject", "x"),
             ("Impersonate-Extra-50%25%3A%20%C3%A4", "y")],
        ),
    ],
)  # fmt: skip
def test_the_headers(user: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert list(impersonation.headers(user)) == found


@pytest.mark.parametrize(
    "user", [{"as-uid": "7"}, {"as-groups": ["a"]}, {"as-user-extra": {"a": ["b"]}}]
)
def test_groups_of_nobody_are_refused(user: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="but not as"):
        impersonation.headers(user)


@pytest.mark.parametrize(
    "user",
    [{"as": False}, {"as": 7}, {"as": "ada", "as-uid": 7}, {"as": "ada", "as-groups": [True]},
     {"as": "ada", "as-user-extra": {"a": [1]}}, {"as": "ada", "as-user-extra": {False: ["a"]}}],
)  # fmt: skip
def test_a_name_that_yaml_takes_for_something_else_is_refused(user: dict[str, Any]) -> None:
    """``as: no`` must not mean that the user acts as itself."""
    with pytest.raises(ValueError, match="is not a text where it names whom to act as"):
        impersonation.headers(user)
