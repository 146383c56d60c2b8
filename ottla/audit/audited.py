"""Results of an audit, from which reports are made: partitions, open transactions, findings. pure"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.gaps import Missing
from ottla.audit.checks.hanging import OpenFinding
from ottla.audit.checks.once import Outcome
from ottla.audit.checks.shape import Model, Shape
from ottla.printable import shell_line
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import Damage
from ottla.scan.listing import PartitionLog
from ottla.scan.storage import hide_secrets
from ottla.verdict import SOME_BROKERS
from ottla.wire import SCHEME

if TYPE_CHECKING:
    from ottla.audit.carry import Carry


class Tally(NamedTuple):
    """Counts of the transactions with batches in the log, and of the records in these batches."""

    transactions: int
    records: int


ALL: Final = "all"
"""Name of all checks, in the limits of a partition that could not be read."""


class Limit(NamedTuple):
    """A check that could not be made completely, and the reason, with its place. `check` may name all checks."""

    check: str
    reason: str


class Source(NamedTuple):
    """Limits of an audit by its source: checks that were not made, and those that saw less than files show.

    `read_until_ms`: the time of the ends up to which a cluster was read, None for directories. `has_records`: False if
    only open transactions were asked for. `properties`: the path of the file with the login.
    """

    not_checked: tuple[Limit, ...] = ()
    reduced: tuple[Limit, ...] = ()
    read_until_ms: int | None = None
    has_records: bool = True
    properties: str = ""

    @property
    def unread(self) -> list[str]:
        """Return the reason for each partition that could not be read, without those of internal topics."""
        return [one.reason for one in self.not_checked if one.check == ALL and not one.reason.startswith("__")]


class PartitionAudit(NamedTuple):
    """Results for a partition of one directory.

    `log_end` is where the valid log ends, or where `--as-of` cut it. `recent`: the newest transactions that ended, rows
    of the `ENDED_` columns of `scan.events`, by marker offset.
    """

    directory: str
    log: PartitionLog
    log_start: int
    log_end: int
    last_stable_offset: int
    committed: Tally
    aborted: Tally
    opened: Tally
    plain_records: int
    control_batches: int
    batches: int
    size_bytes: int
    missing: Missing
    open_transactions: tuple[OpenFinding, ...]
    damage: tuple[Damage, ...]
    torn_tails: tuple[Damage, ...]
    recent: Longs

    @property
    def known_bytes(self) -> int:
        """The size of its files, or, if a broker does not give it to this user, of the batches that were read."""
        return self.log.size_bytes or self.size_bytes

    @property
    def name(self) -> str:
        return self.log.name


class Audit(NamedTuple):
    """An audit of one directory, or of the directories of several brokers of a cluster.

    Ages are relative to `now_ms`: the time of `--as-of`, whose text is in `as_of`. `names`: the known transactional ids
    of the producers in the partitions' `recent`. `ended`: the transactions of all partitions, each counted once.
    `carry`: what the next audit continues, with `--carry`.
    """

    directories: tuple[str, ...]
    now_ms: int
    as_of: str
    checks: tuple[str, ...]
    partitions: list[PartitionAudit]
    findings: list[Finding]
    shape: Shape
    model: Model | None
    names: Mapping[int, str]
    ended: Outcome = Outcome()
    source: Source = Source()
    carry: "Carry | None" = None

    @property
    def title(self) -> str:
        """The directory or directories that were audited, as text."""
        return f"Audit of {', '.join(map(hide_secrets, self.directories))}"

    @property
    def bootstrap(self) -> str:
        """The brokers of an audited cluster, and the option with the login, in place of SOME_BROKERS in commands."""
        (one, *_) = self.directories
        if not one.startswith(SCHEME):
            return SOME_BROKERS
        login = ["--command-config", self.source.properties] if self.source.properties else []
        return shell_line([one.removeprefix(SCHEME), *login])

    @property
    def open_transactions(self) -> list[OpenFinding]:
        return [one for partition in self.partitions for one in partition.open_transactions]

    @property
    def longest(self) -> list[PartitionAudit]:
        """Return every partition once: the longest of several replicas."""
        found: dict[str, PartitionAudit] = {}
        for one in self.partitions:
            other = found.get(one.name)
            if other is None or one.log_end > other.log_end:
                found[one.name] = one
        return list(found.values())

    @property
    def replicated(self) -> set[str]:
        """Names of the partitions that are in several directories."""
        many = Counter(one.name for one in self.partitions)
        return {name for name, count in many.items() if count > 1}

    def at_least(self, severity: Severity) -> list[Finding]:
        """Return the findings of this severity or worse."""
        return [one for one in self.findings if one.is_at_least(severity)]


def names_with_findings(findings: Iterable[Finding]) -> set[str]:
    """Return the partitions (`topic-partition`) that errors or warnings name."""
    return {
        f"{one.topic}-{one.partition}" for one in findings if one.partition is not None and one.is_at_least("warning")
    }
