"""Jobs as processes of this machine.

Every job has its own folder (:mod:`.record`) and its own supervisor process (:mod:`.supervisor`).
Replicas write directly to their log files, so that no line can be lost on the way to a reader, and
any process can follow a job (:mod:`.follower`).
"""
