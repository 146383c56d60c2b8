"""How much clients may take, and for how long they have to wait when they took more. pure"""
