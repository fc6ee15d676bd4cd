"""The promise under chaos: faults at random times, and a checker that does not trust Muster.

    make chaos                                  # as every night: 10,000 executions
    make chaos ARGS="--executions 300 --faults 1 --seed 7"

`load` is a client with a ledger of its own, `faults` breaks things, `storm` puts both over an
installation, `evidence` reads what is left with plain SQL, and `checker` judges it.
"""
