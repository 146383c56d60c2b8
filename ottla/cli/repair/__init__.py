"""`ottla repair`: what hangs on the batches is rebuilt, damaged logs are cut where that was asked for."""
