"""What crashes, power losses and rotten bytes leave of a log directory, and what the broker makes of it. free"""
