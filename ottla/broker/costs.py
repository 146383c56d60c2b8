"""What work on the event loop costs, in microseconds of CPU, for the ledger of `turns.py`. pure

The figures are rounded up from one core of 2024; they need to be right within a factor of three, because a share is a
tenth of what a client may be made to wait. What is small and happens once in a request is in `REQUEST_US`.
`python benchmarks/others.py --walk` compares what was charged with what it took.
"""

from typing import Final

CONNECTION_US: Final = 100.0
"""One connection that is accepted, with its transport."""

HANDSHAKE_US: Final = 1_500.0
"""One TLS handshake: the signature of an RSA key of 2,048 bits is half of it; that of an elliptic curve a tenth."""

TOKEN_US: Final = 400.0
"""One token of OAUTHBEARER that is checked: its JSON, and a signature of RSA or an elliptic curve."""

HANG_UP_US: Final = 30.0
"""One connection that is closed because its peer has hung up: what it held, and its socket, which is most of it."""

REQUEST_US: Final = 40.0
"""One request of any kind: frame, header, handler, reply, its part of the system calls."""

RESUME_US: Final = 40.0
"""One handler that is resumed: what is left of it, its reply, and the system call that sends it."""

FIRST_USE_US: Final = 1_500.0
"""One version of an API that is asked for the first time: its reader and writers are generated and compiled; up to 4 ms
where they are long."""

REQUEST_BYTE_US: Final = 0.02
"""One byte of a small request's body, decoded into objects."""

REQUEST_ENTRY_US: Final = 2.5
"""One entry of an array of a large request's body, decoded into an object with its strings and numbers."""

FREED_ENTRY_US: Final = 0.3
"""The same entry when the request is done with: who refuses it at once lets go of all of them in one step."""

RECEIVED_BYTE_US: Final = 0.0015
"""One byte of a large request that is received: from the kernel, into memory that is new and grows."""

REPLY_ROW_US: Final = 0.5
"""One struct of a reply, written from its values (0.2 us for ten numbers, 0.4 with two strings or lists; a replica list
is no struct). Its bytes cost `COPY_BYTE_US` each, and what was looked up for it `ROW_US`."""

COPY_BYTE_US: Final = 0.0005
"""One byte that is copied, sent, checked by CRC, or read from the page cache."""

ROW_US: Final = 2.0
"""One row that is looked up, filtered or built, if nothing below says more."""

APPEND_US: Final = 20.0
"""One batch that is appended: its producer's state, the indexes, the write."""

AUTHORIZE_US: Final = 2.0
"""One question whether a client may do something to a resource."""

LOOK_US: Final = 0.2
"""One entry of a table that is looked at and left as it is."""

OPEN_PARTITION_US: Final = 400.0
"""One partition that is opened, or made: a directory, three files, their names, beside the calls that are charged."""

FILE_CALL_US: Final = 20.0
"""One call for a file or a name that only touches memory: open, rename, remove, list, make a directory."""

CHANGE_US: Final = 60.0
"""One change of the metadata: checked, encoded, appended, applied and told."""

WRITE_FILE_US: Final = 80.0
"""One small file that is written whole; 20 where the file system has nothing else to do, 700 where it has much."""

PASSWORD_US: Final = 3_000.0
"""One password that is made into a SCRAM credential: 4,096 iterations."""

SYNC_US: Final = 1_000.0
"""One sync of a file or a directory for which the event loop waits."""

CONFIGURE_US: Final = 100.0
"""The configs of one topic, made into what its logs act on."""

CONFIG_ENTRY_US: Final = 4.0
"""One config that is described: its value, and where it comes from."""

PATTERN_BYTE_US: Final = 8.0
"""One byte of a client's regular expression, compiled."""

PATTERN_STEP_US: Final = 0.005
"""One byte of a text in one instruction of a regular expression, where there is no room to remember states."""

BATCH_US: Final = 20.0
"""One batch of a coordinator's log that is read."""

STATE_RECORD_US: Final = 8.0
"""One record of a coordinator's log that is read and applied, or made, appended and applied."""

STATE_BYTE_US: Final = 0.01
"""One byte of such a record: strings and members, made into objects or written."""

HASH_CHAR_US: Final = 0.1
"""One character of a group's or transaction's id, hashed as Java does it."""

MARKER_US: Final = 30.0
"""One marker that is written to a partition, with what follows from it there."""
