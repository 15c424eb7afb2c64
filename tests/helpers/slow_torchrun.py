"""A PyTorch job whose workers' torchruns are slow at the end of the job."""

from __future__ import annotations

# Python imports it at each start. It makes the torchruns of the workers slow between two requests
# to the master's store, at the moment when the master's torchrun learns that all have ended.
SLOW = """
import importlib.abc, importlib.util, os, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.distributed.elastic.utils.store":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_slow(module):
            load(module)
            request = module._barrier_nonblocking

            def slow(**arguments):
                key = request(**arguments)
                print("says that it has ended", flush=True)
                time.sleep(1)
                return key

            module._barrier_nonblocking = slow

        spec.loader.exec_module = load_slow
        return spec

if "LOCAL_RANK" not in os.environ and os.environ["CIAO_REPLICA"] != "master-0":
    sys.meta_path.insert(0, Finder())
"""
SEND_AND_RECEIVE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.zeros(1)
if dist.get_rank() == 0:
    for other in range(1, dist.get_world_size()):
        dist.send(tensor=tensor, dst=other)
else:
    dist.recv(tensor=tensor, src=0)
"""
