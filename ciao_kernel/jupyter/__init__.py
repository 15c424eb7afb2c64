"""Ciao in Jupyter: the kernel, the extension for other kernels, SoS, the gateway client."""
