"""Suggests a remedy for a job whose image cannot be pulled: it depends on who chose the image."""

from __future__ import annotations

import re

from ciao_kernel.magics import stored_header
from ciao_kernel.model import Job

_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
"""Reasons of a waiting container (Kubernetes, pkg/kubelet/images/types.go)."""
_REFUSED = re.compile(
    r"(?i)unauthorized|forbidden|denied|authentication required|authorization failed|no basic auth"
)
_BUILT = frozenset(
    {"packages", "requirements", "base", "registry", "apt", "condaEnv", "dockerfile", "s2iBuilder"}
)
"""Directives with which an image is built for the cell."""


def image_hint(reason: str, text: str, job: Job) -> str:
    """Return a remedy, "" if the job did not fail because of its image.

    Args:
        reason: Kubernetes' word for the reason, such as ``ErrImagePull``.
        text: The message of the job's status, with the registry's own words.
        job: The job; its header shows who chose the image.
    """
    if reason not in _REASONS:
        return ""
    named = stored_header.names(job.header)
    secret = "%imagePullSecret=NAME names a Secret with the password of its registry."
    if named & _BUILT:
        return f"The image was built for this job; the nodes must be able to pull it. {secret}"
    if "image" in named:
        return f"Correct %image, or make the image available to the nodes. {secret}"
    hint = (
        "There is no %image, so the image is that of the settings or ciao's default: add "
        "%image=IMAGE, or set it for all jobs with "
        f"`ciao config images.{job.framework}=IMAGE`."
    )
    return f"{hint} {secret}" if _REFUSED.search(text) else hint
