"""`ottla txn`: what holds back committed reads in a cluster, and what nobody will end."""
