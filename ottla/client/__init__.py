"""For the people who write producers and consumers."""
