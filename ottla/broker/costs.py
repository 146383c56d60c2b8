"""Costs of work on the event loop, in microseconds of CPU, for `Turns.charge`. pure

The figures are rounded up from one core of 2024. They need to be right within a factor of three, because a turn budget
is a tenth of the longest acceptable delay of a client. Small work that happens once for each request is part of
`REQUEST_US`. `python benchmarks/others.py --walk` compares the charged time with the measured time.
"""

from typing import Final

CONNECTION_US: Final = 100.0
"""Accept one connection, with its transport."""

HANDSHAKE_US: Final = 1_500.0
"""One TLS handshake. The signature of an RSA key of 2,048 bits is half of it; that of an elliptic curve a tenth."""

TOKEN_US: Final = 400.0
"""Check one OAUTHBEARER token: its JSON, and a signature of RSA or an elliptic curve."""

HANG_UP_US: Final = 30.0
"""Close one connection whose peer has hung up: its state, and its socket, which is most of it."""

REQUEST_US: Final = 40.0
"""One request of any kind: frame, header, handler, reply, its part of the system calls."""

RESUME_US: Final = 40.0
"""Resume one handler: the rest of its work, its reply, and the system call that sends it."""

FIRST_USE_US: Final = 1_500.0
"""The first request of one version of an API: its reader and writers are generated and compiled. Up to 4 ms for long
ones."""

REQUEST_BYTE_US: Final = 0.02
"""Decode one byte of a small request's body into objects."""

FREED_ENTRY_US: Final = 0.3
"""Free one array entry of a large request at its end: a handler that refuses it at once frees all in one step."""

RECEIVED_BYTE_US: Final = 0.0015
"""Receive one byte of a large request: from the kernel, into memory that is new and grows."""

REPLY_ROW_US: Final = 0.5
"""Write one struct of a reply from its values (0.2 us for ten numbers, 0.4 with two strings or lists; a replica list is
no struct). Its bytes cost `COPY_BYTE_US` each, and the lookup for it `ROW_US`."""

COPY_BYTE_US: Final = 0.0005
"""Copy, send, check by CRC, or read one byte from the page cache."""

ROW_US: Final = 2.0
"""Look up, filter or build one row, if no other cost here is more specific."""

APPEND_US: Final = 20.0
"""Append one batch: its producer's state, the indexes, the write."""

AUTHORIZE_US: Final = 2.0
"""Check one right of a client to one resource."""

LOOKUP_US: Final = 0.2
"""Visit one entry of a table without changing it."""

OPEN_PARTITION_US: Final = 400.0
"""Open or create one partition: a directory, three files, their names. The calls that are charged separately are not in
it."""

FILE_CALL_US: Final = 20.0
"""One call for a file or a name that only touches memory: open, rename, remove, list, make a directory."""

CHANGE_US: Final = 60.0
"""One change of the metadata: check, encode, append, apply and publish it."""

WRITE_FILE_US: Final = 80.0
"""Write one small file as a whole: 20 on an idle file system, 700 on a busy one."""

PASSWORD_US: Final = 3_000.0
"""Make a SCRAM credential of one password: 4,096 iterations."""

SYNC_US: Final = 1_000.0
"""One sync of a file or a directory for which the event loop waits."""

CONFIGURE_US: Final = 100.0
"""Compute the configs of one topic and apply them to its logs."""

CONFIG_ENTRY_US: Final = 4.0
"""Describe one config: its value and its source."""

PATTERN_BYTE_US: Final = 8.0
"""Compile one byte of a client's regular expression."""

PATTERN_CALL_US: Final = 6.0
"""Match a regular expression against one text, apart from the instructions that it runs."""

PATTERN_STEP_US: Final = 0.005
"""Run one instruction of a regular expression on one byte of text, when RE2 has no memory for cached states."""

BATCH_US: Final = 20.0
"""Read one batch of a coordinator's log."""

STATE_RECORD_US: Final = 8.0
"""One record of a coordinator's log: read and applied, or made, appended and applied."""

STATE_BYTE_US: Final = 0.01
"""One byte of such a record: strings and members, decoded into objects or encoded."""

HASH_CHAR_US: Final = 0.1
"""Hash one character of a group's or transaction's id as Java does."""

MARKER_US: Final = 30.0
"""Write one marker to a partition, with its effects there."""

ACL_MATCH_US: Final = 1.0
"""Compare one ACL entry with a filter."""

CREDENTIAL_US: Final = 15.0
"""Compute the three hashes of a SCRAM credential."""

READ_CONFIG_US: Final = 2.0
"""Read one config of a request."""

DECIDE_CONFIG_US: Final = 1.0
"""Decide a new value of one config."""

READ_KEYSTORES_US: Final = 3_000.0
"""Read the keystores of the listeners, to check whether they can be used."""

LOG_DENIAL_US: Final = 30.0
"""Log one denial: find the deciding entry and format the sentence."""

RENAME_PARTITION_US: Final = 50.0
"""Rename the directory of one partition for its deletion."""

ENCODE_CONFIG_US: Final = 5.0
"""Encode one config of a resource."""

APPLY_CONFIG_US: Final = 1.0
"""Apply one config."""

APPLY_RECORD_US: Final = 1.0
"""Apply one metadata record that was read before."""

LOAD_ACL_US: Final = 5.0
"""Add one ACL entry to the authorizer."""

MEASURE_US: Final = 6.0
"""Measure one request for its quota."""

BATCH_HEADER_US: Final = 0.5
"""Pass one batch by its header."""

READ_HEADERS_US: Final = 30.0
"""Read a window of batch headers once."""

SYNC_PARTITION_US: Final = 5.0
"""Pass the files of one partition to a sync."""

COMPLETE_OFFSET_US: Final = 0.6
"""Commit or drop one pending offset of an ended transaction."""

OFFSET_PLACE_US: Final = 0.3
"""Visit one topic-partition for which a group has an offset."""

CHECK_ID_US: Final = 1.0
"""Check whether the time of one transactional id is over."""

ASSIGNED_TOPIC_US: Final = 1.0
"""The cost of a topic of one member in the target assignment of a consumer group."""
ASSIGNED_BYTE_US: Final = 0.03
"""The cost of encoding a byte of a large record of a consumer group."""
ASSIGNED_PARTITION_US: Final = 0.5
"""The cost of a partition in such an assignment."""
