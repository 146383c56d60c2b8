"""Stub. free"""
from contextlib import contextmanager
class MoveChecks:
    def __init__(self, world): pass
    @contextmanager
    def watch(self):
        yield
    def check(self, assembly): return ()
    def check_image(self, assembly): return ()
    def began_life(self): pass
    def lost_power(self): pass
