"""Packages whose own code runs only when one of its names is used, not when one of their modules is imported. free

Programs that use such a package notice nothing. The code of some packages imports much more than the module that Ottla
needs: kafka-python's clients, an argument parser, all messages of a kind.
"""

import importlib.util
import sys
from threading import RLock
from types import ModuleType
from typing import Any, Final

_loading: Final = RLock()


class _Deferred(ModuleType):
    """A package whose own code has not run yet."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's own code, which makes its names, and return this one."""
        with _loading:
            loader = self.__dict__.pop("_ottla_loader", None)
            if loader is not None:
                loader.exec_module(self)
        return self.__getattribute__(name)


def defer_package(name: str) -> None:
    """Let imports of the package's modules not run its own code, unless it has run already."""
    with _loading:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return
        module = _Deferred(name)
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
        module.__package__, module.__path__ = name, [*(spec.submodule_search_locations or ())]
        module.__dict__["_ottla_loader"] = spec.loader
        sys.modules[name] = module
        parent, _, own_name = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own_name, module)
