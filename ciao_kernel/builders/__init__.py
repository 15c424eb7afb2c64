"""Builders: how a program and its files reach the replicas (:class:`ciao_kernel.model.Builder`)."""
