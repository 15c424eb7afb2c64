"""Jobs that exist: finds and describes them, reads their logs, runs programs in their pods."""
