"""Records of `__transaction_state` and `__consumer_offsets`: the one place to import them from. pure frozen"""

from ottla.protocol.fields import UnknownVersion
from ottla.protocol.offsets_records import (
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_offset_value,
    encode_group_value,
    encode_offset_value,
    group_key,
    offset_key,
    read_offsets_key,
)
from ottla.protocol.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    encode_transaction_value,
    read_transaction_key,
    transaction_key,
)

__all__ = [
    "GroupKey",
    "GroupMember",
    "GroupValue",
    "OffsetKey",
    "OffsetValue",
    "TransactionValue",
    "UnknownVersion",
    "decode_group_value",
    "decode_offset_value",
    "decode_transaction_value",
    "encode_group_value",
    "encode_offset_value",
    "encode_transaction_value",
    "group_key",
    "offset_key",
    "read_offsets_key",
    "read_transaction_key",
    "transaction_key",
]
