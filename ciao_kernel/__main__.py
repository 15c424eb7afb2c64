"""``python -m ciao_kernel -f CONNECTION_FILE``: start the kernel. Jupyter calls it."""

from __future__ import annotations


def main() -> None:
    """Run the kernel until it is shut down."""
    from ipykernel.kernelapp import IPKernelApp

    from ciao_kernel.jupyter.kernel import CiaoKernel

    IPKernelApp.launch_instance(kernel_class=CiaoKernel)


if __name__ == "__main__":
    main()
