"""`ottla acl`: the ACLs that allow or deny an operation."""
