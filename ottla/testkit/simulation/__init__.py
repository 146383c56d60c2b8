"""Simulation: the broker's own code on a virtual clock, disk and network, driven by one seed.

    schedule     what happens when, on one virtual time      disk        what a kill leaves, and what a power loss
    network      connections that split, stall and break     ports       the calls at which a broker can be killed
    world        the broker's lives, and the run             faults      what is drawn from a seed
    process      a client as a script                        producers, consumers   the scripts; wire, reading
    history      what clients asked and were told            invariants, replay     what must hold
    outcome      one seed, run and judged                    promises               what an answer promises
    shrink       smaller failures                            plants, rates          bugs on purpose, how soon each is seen

`python -m ottla.testkit.simulate` runs seeds; `ottla.testkit.checker` judges what came of them.
"""
