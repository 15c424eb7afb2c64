"""Client of image registries: read images, append layers, push. Independent of jobs."""
