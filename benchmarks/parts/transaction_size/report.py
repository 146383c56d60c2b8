"""Table of the measurements of `transaction_size.py` and of the fitted model. pure"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from parts.transaction_size.model import Fit, fit


class Measured(NamedTuple):
    """Measurements of one broker by size: a transaction's wall time, the broker's CPU time, and the age of the first
    record when a reader has it; all in ms."""

    name: str
    sizes: list[int]
    wall_ms: list[float]
    cpu_ms: list[float]
    oldest_ms: list[float]


class Fits(NamedTuple):
    wall: Fit
    cpu: Fit
    oldest: Fit


def fits_of(measured: Measured) -> Fits:
    return Fits(*(fit(measured.sizes, times) for times in (measured.wall_ms, measured.cpu_ms, measured.oldest_ms)))


def as_text(brokers: Sequence[Measured], document: dict[str, Any]) -> str:
    machine, record_bytes = document["machine"], document["record_bytes"]
    lines = [
        f"{machine['python']}; {machine['cores']} cores, load {machine['load_1_min']:.1f} before the start, "
        f"{machine['load_1_min_after']:.1f} at the end; records of {record_bytes} bytes, "
        f"medians of {document['rounds']} rounds",
        "",
        "records    " + "".join(f"{broker.name:>9}: MB/s    ms   CPU ms  oldest ms" for broker in brokers),
    ]
    for row, size in enumerate(brokers[0].sizes):
        cells = (
            f"{size * record_bytes / 1000 / broker.wall_ms[row]:15.2f}{broker.wall_ms[row]:8.2f}"
            f"{broker.cpu_ms[row]:9.3f}{broker.oldest_ms[row]:11.2f}"
            for broker in brokers
        )
        lines.append(f"{size:7,}  " + "".join(cells))
    for broker in brokers:
        for what, found in fits_of(broker)._asdict().items():
            lines += ["", *_fit_lines(f"{broker.name}, {what}", found, record_bytes)]
    retried = ", ".join(f"{name} {count}" for name, count in document["retries"].items())
    return "\n".join([*lines, "", f"first batches sent again while markers were missing: {retried}"])


def _fit_lines(what: str, found: Fit, record_bytes: int) -> list[str]:
    lines = [
        f"{what}: T_write {found.write_ms * 1000:.2f} us, O_tx {found.overhead_ms:.3f} ms; "
        f"residuals {found.root_mean_square:.1%} (root mean square), {found.worst:.1%} at most"
    ]
    if found.write_ms:
        shares = ", ".join(f"{share:.0%} from {found.records_for(share):,.0f} records" for share in (0.5, 0.9, 0.99))
        lines.append(f"  at most {record_bytes / 1000 / found.write_ms:.1f} MB/s; {shares}")
    return lines
