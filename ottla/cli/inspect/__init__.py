"""`ottla inspect`: what a data directory holds, on a disk that only looks."""
