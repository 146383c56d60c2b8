"""Conversion between bytes and values, for the wire and the disk. Pure: no IO, no clock, no other package of Ottla."""
