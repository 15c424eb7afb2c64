"""Run a job with the kubeflow-training SDK, as its users do; for :mod:`benchmarks.sdk`.

``python sdk_client.py NAMESPACE JOB IMAGE first|fails``, with the SDK's own interpreter. Writes
``began SECONDS`` and ``returned SECONDS`` (since the epoch), and the SDK's own lines between.
"""

import contextlib
import logging
import sys
import time

from kubeflow.training import TrainingClient


def first():
    """Print one line."""
    print("first")


def fails():
    """worker-1 fails after 2 s, worker-0 goes on for 20 s."""
    import json
    import os
    import time

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    for second in range(2 if index else 20):
        print("step", second)
        time.sleep(1)
    if index:
        raise ValueError("boom")


def main(namespace, job, image, work):
    """Create, wait until it runs (else there are no logs to follow), follow, wait for the end."""
    logging.basicConfig(level=logging.ERROR)
    client = TrainingClient(namespace=namespace, job_kind="TFJob")
    print("began", time.time(), flush=True)
    client.create_job(
        name=job, train_func={"first": first, "fails": fails}[work], base_image=image, num_workers=2
    )
    with contextlib.suppress(RuntimeError):  # what it raises where the job has failed
        client.wait_for_job_conditions(
            name=job, expected_conditions={"Running", "Succeeded"}, polling_interval=1
        )
        client.get_job_logs(name=job, follow=True)
        client.wait_for_job_conditions(name=job, polling_interval=1)
    print("returned", time.time(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
