"""The language of a job cell's header: the table of directives, the parser, and the help."""
