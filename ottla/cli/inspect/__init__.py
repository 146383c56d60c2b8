"""`ottla inspect`: the contents of a data directory, read without any change."""
