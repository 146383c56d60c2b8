"""`ottla ctl`: queries and commands to a running broker over its admin port."""
