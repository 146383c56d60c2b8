"""Client quotas and the throttling of clients that exceed them. pure"""
