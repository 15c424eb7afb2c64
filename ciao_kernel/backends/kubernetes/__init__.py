"""Jobs on a cluster: kinds of the training operator, TrainJobs, or Indexed Jobs."""
