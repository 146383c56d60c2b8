"""Simulation: the broker's own code on a virtual clock, disk and network, driven by one seed.

    network      connections that split, stall and break     setting     initial topics and options of a run
    world        the broker's lives, and the run
    faults       what is drawn from a seed                   troubles    what strikes at a moment of its own
    process      a client as a script                        producers, consumers, members   the scripts; wire, reading
    causes       what comes too late to be told              history     what clients asked and were told
    promises     what an answer promises                     invariants, replay   what must hold
    outcome      one seed, run and judged                    shrink      smaller failures
    plants       bugs on purpose                             rates       how soon each is seen

The virtual clock, the disk and the requests are those of `ottla.testkit.in_memory`. `python -m lab.simulate` runs
seeds; `ottla.testkit.checker` checks their histories.
"""
