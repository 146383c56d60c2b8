"""What tests and the demo are made with: a simulation of the broker from seeds, a model of one transactional id, crash
states of a log directory, the checker of client histories, a second scanner of segment files that shares no code with
the first, a proxy that loses what it is told to lose, and the greediest requests that a schema allows."""
