"""Bytes to values and back, for the wire and the disk. Pure: no IO, no clock, nothing else of ours."""
