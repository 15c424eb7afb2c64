"""Jobs as Python objects: ``_job`` in a notebook, ``ciao_kernel.jobs()`` and ``ciao_kernel.job()``.

Plain cells and scripts use them without ``await``. The session runs on a thread of its own.
"""

from ciao_kernel.api.job_handle import JobHandle
from ciao_kernel.api.job_metrics import JobMetrics, Metric
from ciao_kernel.api.lookup import JobList
from ciao_kernel.api.preview import JobPreview
from ciao_kernel.display.plotting import Curve

__all__ = ["Curve", "JobHandle", "JobList", "JobMetrics", "JobPreview", "Metric"]
