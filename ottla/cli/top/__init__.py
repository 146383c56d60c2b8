"""`ottla top`: what holds readers back in a cluster, as it goes on."""
