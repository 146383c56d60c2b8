"""Kernels are compiled once, also if the package is an archive and the user has no home directory."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import headers
from ottla.spark_jobs.session import pack_packages
from tests.timeout import EVENT_TIMEOUT_S

# (where our code is, where the kernel is kept, hits, misses)
COMPILE = """
import json, sys
sys.path.insert(0, sys.argv[1])
exec(sys.argv[2])
import numpy as np
import ottla
from ottla.scan.compiled import kernels
varint = kernels.varint.of_kind("compiled")
assert varint(np.array([2], dtype=np.uint8), 0, 1) == (1, 1)
stats = varint.stats
print(json.dumps([ottla.__file__, stats.cache_path, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""
# A kernel is saved in two files: the process ends before it writes one of them.
KILLED = """
import os
from numba.core.caching import IndexDataCacheFile
IndexDataCacheFile._save_{file} = lambda *arguments: os._exit(0)
"""


@pytest.fixture
def compile_kernel(tmp_path):
    """Compile a kernel of the package at `path`, in a process of its own, where only `tmp_path/tmp` can be written."""
    (tmp_path / "tmp").mkdir()
    libraries = [one for one in sys.path if Path(one).name == "site-packages"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"HOME": os.devnull, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(libraries)}

    def run(path, before="", **more):
        # -S: site would read the .pth file that points to our source tree.
        done = subprocess.run(
            [sys.executable, "-S", "-c", COMPILE, str(path), before],
            capture_output=True,
            text=True,
            env=environment | more,
            cwd=tmp_path,
            check=False,
            timeout=EVENT_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout or "null")

    return run


@pytest.mark.slow
def test_kernels_of_an_archive_are_compiled_once_for_all_its_paths(compile_kernel, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = pack_packages(tmp_path / "one"), pack_packages(tmp_path / "two")
    place, kept, hits, misses = compile_kernel(first)
    assert place.startswith(f"{first}/")
    assert (hits, misses) == (0, 1)
    assert Path(kept).parent == tmp_path / "tmp" / f"ottla-kernels-{os.geteuid()}"
    assert compile_kernel(second) == [place.replace(str(first), str(second)), kept, 1, 0]


@pytest.mark.slow
def test_kernels_of_another_version_are_not_taken(compile_kernel, tmp_path):
    archive = pack_packages(tmp_path)
    _, kept, _, _ = compile_kernel(archive)
    archive.write_bytes(b"#" + archive.read_bytes())  # bytes before the archive are allowed
    _, now, hits, misses = compile_kernel(archive)
    assert now != kept
    assert (hits, misses) == (0, 1)


@pytest.fixture
def source(tmp_path):
    """Copy our sources to a folder where the test can change them and write other files."""
    package = Path(headers.__file__).parents[1]
    shutil.copytree(package, tmp_path / "source" / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "source"


def change(source):
    with (source / "ottla/protocol/batch_header.py").open("a") as constants:
        constants.write("MAGIC = 3\n")


@pytest.mark.slow
def test_kernels_are_recompiled_when_a_constant_in_another_file_changes(compile_kernel, source):
    assert compile_kernel(source)[2:] == [0, 1]
    change(source)
    assert compile_kernel(source)[2:] == [0, 1]


@pytest.mark.slow
def test_a_half_saved_cache_returns_no_kernels_of_older_sources(compile_kernel, source):
    """Other processes see it for a moment, or permanently if the process was killed."""
    assert compile_kernel(source)[2:] == [0, 1]
    for file in ("index", "data"):
        change(source)
        assert compile_kernel(source, KILLED.format(file=file)) is None
        assert compile_kernel(source)[2:] == [0, 1]
        assert compile_kernel(source)[2:] == [1, 0]
        assert len(list(source.rglob("kernels.varint-*.nbc"))) == 1


@pytest.mark.slow
def test_a_folder_can_be_named(compile_kernel, tmp_path):
    _, kept, _, _ = compile_kernel(pack_packages(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "named"))
    assert Path(kept).parent == tmp_path / "named" / "ottla-kernels"


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_cache_folder_writable_by_others_is_not_used(compile_kernel, tmp_path, mode):
    folder = tmp_path / "tmp" / f"ottla-kernels-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(mode)
    _, kept, hits, _ = compile_kernel(pack_packages(tmp_path))
    assert (kept, hits) == (None, 0)
    assert list(folder.rglob("*.nb?")) == []
