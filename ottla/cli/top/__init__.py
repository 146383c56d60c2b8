"""`ottla top`: a live view of the transactions that hold readers back in a cluster."""
