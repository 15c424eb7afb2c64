"""Builders bring a program and its files to the replicas (:class:`ciao_kernel.plugins.Builder`)."""
