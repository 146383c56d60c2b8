"""Simulation: the broker's own code on a virtual clock, disk and network, driven by one seed.

    network      connections that split, stall and break     setting     initial topics and options of a run
    world        the broker's lives, and the run
    faults       profile and fault plan, drawn from a seed   fault_injector   the faults, at their times
    process      a client as a script                        producers, consumers, members   the scripts; reading
    clients      the clients of a run, drawn                 groups       KIP-848's clients, and checks of their groups
    causes       late requests and markers                   history     requests of clients and their answers
    promises     checks of each answer                       invariants, replay   checks of the broker's state
    outcome      run and check one seed                      shrink      smaller failures
    plants       bugs on purpose                             bugs, group_bugs   their functions
    rates        the share of seeds that detect each bug

The virtual clock and the requests of producers are those of `ottla.testkit.in_memory`, the disk that of
`lab.in_memory`. `python -m lab.simulate` runs seeds; `ottla.testkit.checker` checks their histories.
"""
