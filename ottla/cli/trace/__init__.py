"""`ottla trace`: requests and replies of a running broker, as lines."""
