"""The rows of the table of directives, by subject, with the value types that only they use."""
