"""`ottla txn`: transactions that hold back committed reads in a cluster, and those that their coordinator forgot."""
