"""Jobs on a cluster: the Kubeflow training operator's kinds but MPIJob, or Indexed Jobs."""
