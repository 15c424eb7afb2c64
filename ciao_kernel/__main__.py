"""``python -m ciao_kernel -f CONNECTION_FILE``: start the kernel. Jupyter calls it."""

# No import here, nor in the package's __init__.py, of a module that is not built into Python:
# `from __future__` is one too. Until main() has changed the path, a file of the notebook's folder
# with the same name would be imported.
import sys


def main() -> None:
    """Run the kernel until it is shut down."""
    _leave_out_working_folder()
    from ipykernel.kernelapp import IPKernelApp

    from ciao_kernel.jupyter.kernel import CiaoKernel

    IPKernelApp.launch_instance(kernel_class=CiaoKernel)


def _leave_out_working_folder() -> None:
    """Remove the working folder, which ``python -m`` puts before the standard library.

    It is the notebook's folder, and a file such as ``random.py`` in it would run at the start of
    the kernel. IPython adds the folder again, behind the standard library, so that cells can import
    modules beside the notebook. ``ipykernel_launcher`` does the same.
    """
    import os  # every Python imports it before the path is set

    if sys.flags.safe_path or not sys.path:  # then Python has added no folder
        return
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109 (pathlib is not imported yet)
    except OSError:  # the folder is gone
        here = ""
    if sys.path[0] == "" or os.path.realpath(sys.path[0]) == here:
        del sys.path[0]


if __name__ == "__main__":
    main()
