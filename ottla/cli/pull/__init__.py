"""`ottla pull`: copy partitions of a cluster into a log directory."""
