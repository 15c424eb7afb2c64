"""The way back: values and files of ``%output``, from a replica to the notebook."""
