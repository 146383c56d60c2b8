"""A build step that compiles the walk over records to machine code where a C compiler is installed.

Without a compiler the package is plain Python and works in the same way. The build prints the reason and continues.
`OTTLA_COMPILE=0` builds plain Python, `OTTLA_COMPILE=1` fails where nothing can be compiled.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "ottla.protocol.record_walk"
SOURCE = Path(MODULE.replace(".", "/") + ".py")
COMPILED = SOURCE.with_name("record_walk_compiled.py")
MYPYC = """
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify([{source!r}], opt_level="3")
setup(name="walk", packages=[], ext_modules=modules, script_args=["build_ext", "--inplace"])
"""


class CompiledWalk(BuildHookInterface):
    """Compiles `SOURCE` under the name of `COMPILED`. The Python module stays in the package."""

    PLUGIN_NAME = "custom"

    def dependencies(self):
        return ["mypy>=1.18", "setuptools"] if self.target_name == "wheel" and lacks() is None else []

    def initialize(self, version, build_data):
        if self.target_name != "wheel":
            return
        self._directory = tempfile.TemporaryDirectory()
        here, package = Path(self._directory.name), Path(self.root, COMPILED.parent)
        lacking = lacks() or _compile((package / SOURCE.name).read_text(), here)
        if version == "editable":
            for stale in package.glob(f"{COMPILED.stem}*.so"):
                stale.unlink()
        if lacking is not None:
            if os.environ.get("OTTLA_COMPILE") == "1":
                raise SystemExit(f"The walk over records cannot be compiled: {lacking}")
            self.app.display_warning(f"The walk over records stays Python: {lacking}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for built in Path(here, COMPILED.parent).glob("*" + sysconfig.get_config_var("EXT_SUFFIX")):
            if version == "editable":
                shutil.copy(built, package / built.name)
            else:
                build_data["force_include"][str(built)] = str(COMPILED.parent / built.name)

    def finalize(self, version, build_data, artifact_path):
        if self.target_name == "wheel":
            self._directory.cleanup()


def _compile(source, directory):
    """Make the extension modules below a directory; what went wrong, or None."""
    copy = directory / COMPILED
    copy.parent.mkdir(parents=True)
    for package in (copy.parent, copy.parent.parent):
        (package / "__init__.py").touch()
    copy.write_text(f'{source}\n\nSOURCE = "{digest(source)}"\n')
    script = MYPYC.format(source=str(COMPILED))
    # Nobody replaces a function of the module by one of the same name: so the compiler may put one into the other.
    flags = f"{os.environ.get('CFLAGS', '')} -fno-semantic-interposition"
    environment = os.environ | {"CFLAGS": flags}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"


def digest(source):
    """Return a digest of the compiled source, to check later that the source has not changed."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def lacks():
    """Why nothing can be compiled here, or None."""
    if os.environ.get("OTTLA_COMPILE") == "0":
        return "OTTLA_COMPILE=0"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h is missing"
    return None
