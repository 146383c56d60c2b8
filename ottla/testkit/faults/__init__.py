"""What can go wrong on purpose: planned, counted, and the same inside our broker and in front of any. pure"""
