"""A client of image registries: read images, append layers, push. Knows nothing of jobs."""
