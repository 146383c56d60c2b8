"""Simulation: the broker's own code on a virtual clock, disk and network, driven by one seed.

    schedule  what happens when, on one virtual time       disk     files that survive a kill, and those that a power loss leaves
    network   connections that split, stall and break      ports    the calls at which a broker can be killed
    world     the broker's lives and the run                faults   what is drawn from a seed
    process   a client as a script                         producers, copiers, consumers   the scripts
    history   what clients asked and were told             invariants   what must hold after every step

`python -m ottla.testkit.simulate` runs seeds; `ottla.testkit.checker` judges what came of them.
"""
