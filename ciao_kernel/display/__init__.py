"""Two renderers of one protocol (:class:`ciao_kernel.plugins.Display`): notebook and terminal.

``lines`` turns replicas' bytes into prefixed text, ``table`` keeps the content of the live table;
both renderers use both modules.
"""
