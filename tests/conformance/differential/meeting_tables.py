"""Scripts of requests that meet the markers of their own transactional id: everybody is sent away.

Kafka answers EndTxn before the markers are written, so a request right behind it meets them nearly always; where it
does not, the script tries again. Ottla plays here with `transaction.markers.wait.ms` 0, which puts markers off.
"""

from differential.steps import (
    Script,
    add,
    add_many,
    add_offsets,
    alias,
    end,
    init,
    joining,
    list_transactions,
    meet,
    produce,
    txn_offset_commit,
)


def scripts():
    """Every request in every version behind EndTxn 4 and 5, behind a commit and an abort."""
    for version in (4, 5):
        for commits in (True, False):
            ended = end("A", commits, version=version, settle=False)
            write = [produce("A", version=12), produce("A", 1, version=12)]
            if version == 4:
                write = [add("A", [0, 1]), produce("A", version=11), produce("A", 1, version=11)]
            # Twice: what is open since the last try is aborted first.
            # As the client that sends the next request without waiting for the epoch that EndTxn 5 gives it.
            begin = [init("A"), init("A"), *write, alias("next", "A", epoch=1), alias("late", "A", epoch=-1)]
            begin.append(alias("other", "A", producer_id=1))
            kind = "commit" if commits else "abort"
            for who in ("A", "next", "late", "other"):
                steps = [meet(begin, ended, asked) for asked in _ask(who)]
                yield Script(f"meet: requests of {who} behind {kind} {version}", steps, False)
            others = [init("B", version=asked, settle=False) for asked in (0, 2, 5)] + [list_transactions("A")]
            steps = [meet(begin, ended, asked) for asked in others]
            yield Script(f"meet: requests of others behind {kind} {version}", steps, False)


def _ask(who):
    yield init("B", expected=who, settle=False)
    for version in (1, 3):
        yield add(who, [0], version=version)
    yield add_many([joining(who)])
    yield add_many([joining(who, verify=True)])
    yield add_offsets(who, version=4)
    yield txn_offset_commit(who, [[0, 1]])
    yield txn_offset_commit(who, [[0, 1]], version=5)
    for version in (1, 4, 5):
        for commits in (True, False):
            yield end(who, commits, version=version, settle=False)
