"""Check that dropped objects are freed with their last reference: no collection frees a frozen object. free"""

import gc
from collections import Counter
from contextlib import contextmanager


@contextmanager
def expect_no_garbage():
    """Fail if objects of this project that are dropped in the block wait for a garbage collection."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        left = Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("ottla."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
    assert not left
