"""Two renderers of one protocol (:class:`ciao_kernel.plugins.Display`): notebook and terminal.

``lines`` turns replicas' bytes into prefixed text, ``table`` keeps what the live table shows;
both renderers use both.
"""
