"""Jobs as processes of this machine.

Every job has a folder of its own (:mod:`.record`) and a supervisor process of its own
(:mod:`.supervisor`). Replicas write straight to their log files, so that no line can be lost
between them and a reader, and any process may follow (:mod:`.follower`).
"""
