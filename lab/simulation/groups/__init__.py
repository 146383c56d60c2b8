"""Clients of the groups of consumers, and the checks of these groups.

membership             a member of the consumer protocol  classic_membership   one of the classic protocol
group_consumers        consumers and copiers              migrating_consumers  consumers that change their protocol
group_checks           checks of each group               migration_checks     checks of groups that change theirs
commit_checks          checks of their commits
"""
