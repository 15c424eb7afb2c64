"""Files of ``%output``: what pods get for them, and the ways by which they come back."""
