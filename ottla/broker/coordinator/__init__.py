"""What the coordinators of transactions and of groups have in common: shards of a log, loading, writing. free"""
