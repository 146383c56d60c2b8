"""Version of the running Python, and signs of how it was built. free

    python benchmarks/parts/interpreter.py

It imports only the standard library, so that any interpreter can run it.
"""

import platform
import sysconfig
from collections.abc import Mapping
from typing import Any

# Options of `configure`, and the compiler flags that it derives from them for the modules of the interpreter.
# `PGO_PROF_USE_FLAG` is no sign: it is set even if it is not used.
SIGNS = {"PGO": ("--enable-optimizations", "-fprofile-use", "-fprofile-instr-use"), "LTO": ("--with-lto", "-flto")}
SAID_IN = (
    "CONFIG_ARGS",
    "CONFIGURE_CFLAGS_NODIST",
    "CONFIGURE_LDFLAGS_NODIST",
    "PY_CFLAGS",
    "PY_CFLAGS_NODIST",
    "PY_LDFLAGS_NODIST",
)


def kinds(variables: Mapping[str, Any]) -> list[str]:
    """Return the optimizations that `sysconfig` shows. A build with `make profile-opt`, as Debian's, leaves no sign."""
    words = [word.strip("'\"") for name in SAID_IN for word in str(variables.get(name) or "").split()]
    return [
        kind
        for kind, signs in SIGNS.items()
        if any(word == sign or word.startswith(f"{sign}=") for word in words for sign in signs if word != f"{sign}=no")
    ]


def describe() -> str:
    """Return the implementation, version, optimizations and compiler of the running interpreter."""
    found = " and ".join(kinds(sysconfig.get_config_vars())) or "no sign of PGO or LTO"
    compiler = " ".join(platform.python_compiler().split()[:2])
    return f"{platform.python_implementation()} {platform.python_version()} ({found}; {compiler})"


def short() -> str:
    """Return the version and optimizations of the interpreter, for the head of a column."""
    return "Python " + " ".join([platform.python_version(), *kinds(sysconfig.get_config_vars())])


if __name__ == "__main__":
    print(describe())
