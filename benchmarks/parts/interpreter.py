"""Which Python runs, and how it was built, as far as that can be known. free

    python benchmarks/parts/interpreter.py

It imports the standard library alone, so that any interpreter can be asked.
"""

import platform
import sysconfig
from collections.abc import Mapping
from typing import Any

# What `configure` was given, and what it wrote of it into the flags that modules of the interpreter are compiled with.
# `PGO_PROF_USE_FLAG` says nothing: it is set whether it is used or not.
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
    """What the variables of `sysconfig` show. Who builds with `make profile-opt`, as Debian does, leaves no sign."""
    words = [word.strip("'\"") for name in SAID_IN for word in str(variables.get(name) or "").split()]
    return [
        kind
        for kind, signs in SIGNS.items()
        if any(word == sign or word.startswith(f"{sign}=") for word in words for sign in signs if word != f"{sign}=no")
    ]


def named() -> str:
    """The interpreter that runs this."""
    found = " and ".join(kinds(sysconfig.get_config_vars())) or "no sign of PGO or LTO"
    compiler = " ".join(platform.python_compiler().split()[:2])
    return f"{platform.python_implementation()} {platform.python_version()} ({found}; {compiler})"


def short() -> str:
    """Enough to tell it from another in the head of a column."""
    return "Python " + " ".join([platform.python_version(), *kinds(sysconfig.get_config_vars())])


if __name__ == "__main__":
    print(named())
