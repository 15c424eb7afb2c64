"""How a program and its files reach the replicas (:class:`ciao_kernel.plugins.Builder`)."""
