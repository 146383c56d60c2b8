"""A build step that compiles the walk over records and the engine of the broker to machine code, with mypyc.

Without a compiler the package is plain Python and works in the same way. The build prints the reason and continues.
`OTTLA_COMPILE=0` builds plain Python, `OTTLA_COMPILE=1` fails where nothing can be compiled. An editable installation
compiles the walk alone, because machine code of the engine would hide what is edited.
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

WALK = "ottla/protocol/record_walk.py"
COMPILED_WALK = "ottla/protocol/record_walk_compiled.py"

FOLDERS = {
    "ottla/broker": "admission connection connection_memory costs dispatch memory outbox turns",
    "ottla/broker/api": (
        "add_offsets_to_txn add_partitions_to_txn authorization duplicates durability end_txn fetch "
        "fetch_check init_producer_id offset_commit partition_rows produce produce_check reply request "
        "txn_offset_commit verification"
    ),
    "ottla/broker/coordinator": "runtime shard",
    "ottla/broker/group": "log metadata_manager offsets shard",
    "ottla/broker/log": (
        "batches flusher leader_epoch_cache log_validator partition producer_state_entry "
        "producer_state_manager results timestamps unified_log"
    ),
    "ottla/broker/log/segments": "log_segment log_segments segment_index stored_index transaction_index",
    "ottla/broker/security": "session",
    "ottla/broker/txn": (
        "completion_waiters coordinator end_txn_rules log machine markers shard state_manager states values"
    ),
    "ottla/protocol": "batch batch_header errors hashing record_frames records values varints walked",
    "ottla/protocol/internal_topics": "offsets_records transaction_records",
    "ottla/protocol/requests": "codec fetch_wire fetched frames produce_wire produced writer",
}
ENGINE = [f"{folder}/{name}.py" for folder, names in FOLDERS.items() for name in names.split()]
"""The modules of the engine: what produce, fetch and transactions run for each request. A class of another module
cannot inherit from one of theirs, and a test cannot replace one of their functions."""

MYPYC = """
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(["--config-file=mypy.ini", *{sources!r}], opt_level="{level}", debug_level="0", multi_file={many},
                    group_name={group!r})
arguments = ["--quiet", "build_ext", "--inplace", "--parallel=2"]
setup(name="compiled", packages=[], ext_modules=modules, script_args=arguments)
"""
MYPY = """
[mypy]
ignore_missing_imports = True
[mypy-kafka.*,cramjam.*,lz4.*,zstandard.*,crc32c.*,kazoo.*]
follow_imports = skip
"""


class Compiler(BuildHookInterface):
    """Compiles the walk under the name of `COMPILED_WALK`, and the engine. The Python modules stay in the package."""

    PLUGIN_NAME = "custom"

    def dependencies(self):
        return ["mypy~=2.4", "setuptools"] if self.target_name == "wheel" and lacks() is None else []

    def initialize(self, version, build_data):
        if self.target_name != "wheel":
            return
        self._directory = tempfile.TemporaryDirectory()
        here, package = Path(self._directory.name), Path(self.root, "ottla")
        editable = version == "editable"
        lacking = lacks() or compile_package(package, here, [] if editable else ENGINE)
        if editable:
            for stale in package.glob("protocol/record_walk_compiled*.so"):
                stale.unlink()
        if lacking is not None:
            if os.environ.get("OTTLA_COMPILE") == "1":
                raise SystemExit(f"Ottla cannot be compiled: {lacking}")
            self.app.display_warning(f"Ottla stays plain Python: {lacking}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for built in here.rglob("*" + sysconfig.get_config_var("EXT_SUFFIX")):
            name = built.relative_to(here)
            if name.parts[0] == "build":
                continue
            if editable:
                shutil.copy(built, Path(self.root, name))
            else:
                build_data["force_include"][str(built)] = str(name)

    def finalize(self, version, build_data, artifact_path):
        if self.target_name == "wheel":
            self._directory.cleanup()


def compile_package(package, directory, engine):
    """Make the extension modules in a copy of the package; return what went wrong, or None."""
    copy = directory / "ottla"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    Path(directory, "mypy.ini").write_text(MYPY)
    wrong = _run_mypyc(directory, engine, level=1, group="ottla") if engine else None
    if wrong is None:
        walk = Path(directory, WALK).read_text()
        Path(directory, COMPILED_WALK).write_text(f'{walk}\n\nSOURCE = "{digest(walk)}"\n')
        wrong = _run_mypyc(directory, [COMPILED_WALK], level=3, group=None)
    return wrong


def _run_mypyc(directory, sources, level, group):
    """Compile these files below a directory, as one shared library named by `group` if they are several."""
    script = MYPYC.format(sources=sources, level=level, many=len(sources) > 1, group=group)
    # A function of a compiled module is never replaced by one of the same name: the compiler may inline it.
    flags = f"{os.environ.get('CFLAGS', '')} -fno-semantic-interposition"
    environment = os.environ | {"CFLAGS": flags}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"


def digest(source):
    """Return a digest of the compiled source, to check later that the source has not changed."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def lacks():
    """Return why nothing can be compiled here, or None."""
    if os.environ.get("OTTLA_COMPILE") == "0":
        return "OTTLA_COMPILE=0"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h is missing"
    return None
