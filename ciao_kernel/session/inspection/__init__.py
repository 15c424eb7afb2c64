"""Where the replicas of a job stand: asked, merged into a picture, and shown by itself."""
