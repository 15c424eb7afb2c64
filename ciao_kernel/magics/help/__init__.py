"""Help while a user writes a header: completion, and texts about directives."""
