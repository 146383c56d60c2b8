"""`ottla acl`: who may do what, and why."""
