"""`ottla repair`: rebuild indexes and snapshots from the batches, and truncate damaged logs on request."""
