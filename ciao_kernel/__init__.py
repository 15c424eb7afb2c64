"""ciao: a Jupyter kernel whose cells train on many replicas.

Importing the package costs nothing: the kernel, the IPython extension and the command line import
other modules at their first use.
"""

# Without `from __future__`: at the start of a kernel it would import a file of that name in the
# notebook's folder (__main__.py). So annotations are in quotes.

__version__ = "0.1.0"

TYPE_CHECKING = False  # not from typing: that import would cost more than all the rest here
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ciao_kernel.api import JobHandle, JobList


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Register ``%%ciao`` and ``%ciao``; IPython calls it on ``%load_ext ciao_kernel``."""
    from ciao_kernel.jupyter.extension import register

    register(shell)


def job(name: str, *, namespace: str = "", context: str = "", backend: str = "") -> "JobHandle":
    """Return an existing job by its name, for Python code.

    Args:
        name: Name of the job, as `%ciao jobs` lists it.
        namespace: Namespace of a job on a cluster; "" means the one of the settings.
        context: Context of the kubeconfig; "" means the one of the settings.
        backend: ``local`` for this machine, ``kubernetes`` for the cluster; "" means both.

    Raises:
        NoSuchJob: No job has that name; the hint suggests the closest name.
        UsageError: Several jobs in different places have that name, or there is no such backend.
    """
    from ciao_kernel.api import client, lookup
    from ciao_kernel.model.queries import Where

    where = Where(context=context, namespace=namespace, backend=backend)
    return lookup.find(client.default(), name, where)


def jobs(
    *, mine: bool = True, namespace: str = "", context: str = "", backend: str = ""
) -> "JobList":
    """Return existing jobs, oldest first, for Python code.

    Args:
        mine: Leave out the jobs of other users of a namespace.
        namespace: Namespace of jobs on a cluster; "" means the one of the settings.
        context: Context of the kubeconfig; "" means the one of the settings.
        backend: ``local`` for this machine, ``kubernetes`` for the cluster; "" means both.

    Raises:
        BackendError: A backend does not answer.
        UsageError: There is no such backend.
    """
    from ciao_kernel.api import client, lookup
    from ciao_kernel.model.queries import Where

    where = Where(context=context, namespace=namespace, backend=backend)
    return lookup.find_all(client.default(), where, mine=mine)
