"""The admin port: a small HTTP server of the broker for people, tools and tests. Off unless it is asked for."""
