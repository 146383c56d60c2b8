"""The only calls for time and files."""
