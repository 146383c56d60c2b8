"""Plain and compiled kernels give the same results for sound logs and any bytes; a process compiles when it pays."""

import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import MAX_TIMESTAMP_OFFSET
from ottla.protocol.checkpoints import LAST_BASE_OFFSET
from ottla.scan import frames, headers, schemas, states
from ottla.scan.columns import ColumnBuilder
from ottla.scan.compiled import kernels
from ottla.scan.compiled.kernels import int16, int32, int64, kernel, uint32, varint
from ottla.scan.events import Follower
from tests.kernel_kinds import COMPILED, PLAIN, only
from tests.timeout import EVENT_TIMEOUT_S

NAMES = [(name, True) for name in schemas.VIEWS[schemas.RECORDS]]
KINDS = (PLAIN, COMPILED)
NEVER = np.empty((0, 3), dtype=np.int64)
# The modules of a process: with nothing to do, with as much as plain kernels do, with a step more.
CHOOSING = """
import sys
import numpy as np
from ottla.scan.compiled import kernels
for steps in 0, kernels.PLAIN_STEPS, 1:
    kernels.expect(steps)
    assert kernels.varint(np.array([2], dtype=np.uint8), 0, 1) == (1, 1)
    print("numba" in sys.modules)
"""


@pytest.fixture(scope="module")
def kind_of_kernels():
    """Do nothing: the tests of this module choose the kind themselves."""


@kernel
def read_all(buffer, at):
    return int16(buffer, at), int32(buffer, at), int64(buffer, at), uint32(buffer, at)


def array(data):
    return np.frombuffer(bytes(data), dtype=np.uint8).copy()


@given(data=st.binary(min_size=12, max_size=12), at=st.integers(0, 4))
def test_integers_are_those_of_the_bytes(data, at):
    def there(size, signed=True):
        return int.from_bytes(data[at : at + size], "big", signed=signed)

    for kind in KINDS:
        with only(kind):
            assert read_all(array(data), at) == (there(2), there(4), there(8), there(4, signed=False))


@given(data=st.binary(max_size=12))
def test_kernels_return_python_integers(data):
    for kind in KINDS:
        with only(kind):
            assert [type(part) for part in varint(array(data), 0, len(data))] == [int, int]


@st.composite
def logs(draw):
    """Return batches and markers of a few producers with some changed bytes, mostly outside of lengths and offsets."""
    made, offset = bytearray(), 0
    for _ in range(draw(st.integers(1, 6))):
        producer = {"producer_id": draw(st.integers(1, 3)), "producer_epoch": draw(st.integers(0, 2))}
        if draw(st.integers(0, 3)) == 0:
            epoch, commit = draw(st.integers(0, 2)), draw(st.booleans())
            batch, count = build_marker(coordinator_epoch=epoch, commit=commit, timestamp_ms=1_000, **producer), 1
            struct.pack_into(">q", batch, 0, offset)
        else:
            content = st.none() | st.binary(max_size=20) | st.just(bytes(200))
            records = draw(st.lists(st.tuples(content, content), min_size=1, max_size=4))
            headed = [(*one, [("h", b"x")] * draw(st.integers(0, 2)), draw(st.integers(0, 2_000))) for one in records]
            shape = {"base_sequence": draw(st.integers(0, 5)), "transactional": draw(st.booleans())}
            batch, count = build_batch(headed, base_offset=offset, **shape, **producer), len(headed)
        base_and_max_timestamp = [draw(st.sampled_from([0, 0, -(2**63), 2**63 - 1])) for _ in range(2)]
        struct.pack_into(">2q", batch, MAX_TIMESTAMP_OFFSET - 8, *base_and_max_timestamp)
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            batch[draw(st.integers(12, len(batch) - 1))] = draw(st.integers(0, 255))
        made += batch
        offset += count + draw(st.sampled_from([0, 0, 0, 7]))
    return bytes(made)


def run_kernels(data):
    """Return all results of the kernels for these bytes, as a separate file."""
    buffer, rows = array(data), headers.header_rows(10)
    end = len(buffer)
    count, *stopped = headers.walk_headers(buffer, 0, end, end, end, 0, 2**31, rows)
    rows = rows[:count]
    follower = Follower(states.empty(), 0, 1_000, has_sequences=True)
    followed = [found.tolist() for found in follower.follow(rows, 0, 0)]
    left = follower.leaving()
    joined = states.enter(left, [left]).rows.tolist()
    found = headers.find_header(buffer, min(1, end), end, end, 0, 2**31, headers.header_rows(1)[0])
    states_left = left.rows.tolist(), joined
    return stopped, rows.tolist(), followed, follower.totals.tolist(), states_left, found, read(buffer, rows)


def read(buffer, rows):
    """Return the records, and for each unreadable batch why reading stopped."""
    selected, sections = headers.header_rows(len(rows)), np.empty((len(rows), 2), dtype=np.int64)
    count = frames.select_visible(rows, True, 1, 2**62, NEVER, selected, sections)
    columns = ColumnBuilder(schemas.arrow_schema(schemas.RECORDS, NAMES))
    columns.start("topic", 0, 0)
    ends, done = [], 0
    while done < count:
        decoded, why = columns.add(buffer, selected[done:count], sections[done:count], 1, 2**62)
        done += decoded + (why == frames.MALFORMED)
        ends.append((decoded, why))
    return ends, list(columns.take())


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@given(data=logs() | st.binary(max_size=300))
def test_plain_and_compiled_kernels_give_the_same_results(data):
    with only(PLAIN):
        plainly = run_kernels(data)
    with only(COMPILED):
        assert run_kernels(data) == plainly


@kernel
def write_sums(given, out):
    for index in range(given.shape[0]):
        row = given[index]
        out[index, 1] = given[index, 0] + row[1]
        out[index][2:][0] = row[1]


def test_arrays_of_two_dimensions_have_elements_and_rows_of_any_layout():
    given = np.arange(6).reshape(2, 3)
    for kind in KINDS:
        for rows in given, given.T.copy().T, given[:0]:
            with only(kind):
                out = np.zeros((len(rows), 3), dtype=np.int64)
                write_sums(rows, out)
                assert out.tolist() == [[0, 1, 1], [0, 7, 4]][: len(rows)]


def test_the_largest_offsets_do_not_overflow():
    batch = build_batch([(None, b"1")], base_offset=LAST_BASE_OFFSET, producer_id=1, producer_epoch=0)
    struct.pack_into(">i", batch, 23, 2**31 - 1)  # the last offset delta
    end = len(batch)
    for kind in KINDS:
        with only(kind):
            rows = headers.header_rows(1)
            walked = headers.walk_headers(array(batch), 0, end, end, end, 0, LAST_BASE_OFFSET + 1, rows)
            assert walked == (1, end, headers.CUT, 2**63 - 1)
            follower = Follower(states.empty(), 0, 1_000, has_sequences=True)
            follower.follow(rows, 0, 0)
            assert follower.leaving().next_offset == 2**63 - 1


@pytest.mark.slow
def test_kernels_are_compiled_only_after_enough_steps():
    done = subprocess.run(
        [sys.executable, "-c", CHOOSING], capture_output=True, text=True, check=False, timeout=EVENT_TIMEOUT_S
    )
    assert (done.stdout.split(), done.stderr) == (["False", "False", "True"], "")


def test_concurrent_first_calls_create_a_kernel_once():
    made, together = [], threading.Barrier(4)

    def make():
        made.append(1)
        return abs

    callee = kernels.Callee(make, make)

    def call(number):
        together.wait(EVENT_TIMEOUT_S)
        return callee.of_kind(PLAIN)(number)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, [-1, -2, -3, -4])) == [1, 2, 3, 4]
    assert made == [1]
