"""What warm replicas (``%warm``) run, how programs are sent to them, and what their logs say."""
