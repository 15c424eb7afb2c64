"""The objects of a new job, as its plan and the patch of its user ask for them."""
