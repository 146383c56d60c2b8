"""The metadata of the cluster: topics, ids, features and producer-id blocks."""
