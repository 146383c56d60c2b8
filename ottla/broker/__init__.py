"""The daemon: log, transactions, groups and the API handlers over them."""
