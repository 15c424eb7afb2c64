"""TensorBoard for jobs (``%tensorboard``): the user's own program, on folders of this machine."""
