"""Jobs on a cluster: kinds of the training operator but MPIJob, TrainJobs, or Indexed Jobs."""
