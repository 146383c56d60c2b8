"""Topics on the admin port: their partitions and settings, and pieces of their records with fates."""
