"""Tools for tests: an independent scanner of segment files."""
