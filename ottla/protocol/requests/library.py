"""The package of kafka-python without its clients, whose import takes longer than that of all messages. free

Programs that use the clients, too, notice nothing: the package runs its own code when one of its names is used.
"""

import importlib.util
import sys
from importlib.abc import Loader
from threading import RLock
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "kafka"
_loading: Final = RLock()


class _MessagesOnly(ModuleType):
    """The package, whose own code has not run yet."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's own code, which makes its names, and return this one."""
        with _loading:
            loader = self.__dict__.pop("_ottla_loader", None)
            if loader is not None:
                loader.exec_module(self)
        return self.__getattribute__(name)


def import_without_clients() -> None:
    """Let imports of kafka-python's messages not import its clients, unless they are imported already."""
    with _loading:
        spec = None if _PACKAGE in sys.modules else importlib.util.find_spec(_PACKAGE)
        if spec is None or not isinstance(spec.loader, Loader):
            return
        module = _MessagesOnly(_PACKAGE)
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
        module.__package__, module.__path__ = _PACKAGE, [*(spec.submodule_search_locations or ())]
        module.__dict__["_ottla_loader"] = spec.loader
        sys.modules[_PACKAGE] = module
