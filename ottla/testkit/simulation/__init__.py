"""Simulation: the broker's own code on a virtual clock, disk and network, driven by one seed.

    schedule     what happens when, on one virtual time      disk        what a kill leaves, and what a power loss
    network      connections that split, stall and break     ports       the calls at which a broker can be killed
    disk_errors  a disk that fails                           setting     what a run begins with
    world        the broker's lives, and the run
    faults       what is drawn from a seed                   troubles    what strikes at a moment of its own
    process      a client as a script                        producers, consumers, members   the scripts; wire, reading
    causes       what comes too late to be told              history     what clients asked and were told
    promises     what an answer promises                     invariants, replay   what must hold
    outcome      one seed, run and judged                    shrink      smaller failures
    plants       bugs on purpose                             rates       how soon each is seen

`python -m ottla.testkit.simulate` runs seeds; `ottla.testkit.checker` judges what came of them.
"""
