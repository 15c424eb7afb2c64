"""How far a build is, from the executor's own words."""

from __future__ import annotations

from ciao_kernel.builders.build_stages import BuildStages

DOCKERFILE = """# syntax=docker/dockerfile:1
ARG TAG=1
FROM python:${TAG} AS one
RUN apt-get update && \\
    apt-get install -y   git
FROM python:${TAG}
copy --from=one /usr/bin/git /usr/bin/
RUN pip install app
ENV A=1
RUN pip install app
"""


def test_an_instruction_that_begins_ends_those_before() -> None:
    stages = BuildStages(DOCKERFILE)
    assert (stages.done, stages.total) == (0, 5)
    log = [
        ("Retrieving image manifest python:1", 0),
        ("[build] RUN apt-get update &&     apt-get install -y   git", 0),
        ("[build] Taking snapshot of full filesystem...", 0),
        ("[build] COPY --from=one /usr/bin/git /usr/bin/", 1),
        ("[build] RUN pip install app", 2),
        ("[build] RUN pip install", 2),
        ("[build] ENV A=1", 3),
        ("[build] RUN pip install app", 4),
        ("[build] RUN pip install app", 4),
        ("[build] ENV A=1", 4),
    ]
    for text, done in log:
        stages.read(text)
        assert stages.done == done, text


def test_only_an_instruction_is_read() -> None:
    stages = BuildStages(DOCKERFILE)
    assert not stages.read("[build] Pushing image to host/cells")
    assert not stages.read("")
    assert stages.read("[build] RUN apt-get update && apt-get install -y git")
