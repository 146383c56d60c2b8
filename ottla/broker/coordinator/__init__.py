"""Common parts of the transaction and the group coordinator: shards, their loading, writes to their log. free"""
