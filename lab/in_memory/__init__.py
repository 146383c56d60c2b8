"""A disk in memory for simulations: its files and names, and the effects of kills, power losses and errors. free"""
