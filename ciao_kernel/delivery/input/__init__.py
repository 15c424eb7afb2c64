"""The way there: the program, its files, and the values of ``%input``."""
