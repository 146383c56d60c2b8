"""Functions that numba compiles, and the cache of the compiled code."""
