"""The modules of images.ipynb, beside the notebook."""
