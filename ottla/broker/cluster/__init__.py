"""Who leads what: topics, ids, features and producer-id blocks."""
