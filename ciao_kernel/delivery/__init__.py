"""Delivery of a program's modules, files, variables and packages."""
