"""The promise under chaos: faults at random times, and a checker that does not trust Muster.

    make chaos                                  # as every night: 10,000 executions
    make chaos ARGS="--executions 300 --times 1 --seed 7"
    make chaos ARGS="--faults 'freeze broker,busy worker' --no-failpoints --executions 300"
    make chaos ARGS=--default-settings

`load` is a client with a ledger of its own, `faults` breaks things, `storm` puts both over an
installation, `evidence` reads what is left with plain SQL as the `facts`, and `checker` judges
them: `accounting` whether a bad end had to be, `task_rules` tasks and their steps.
"""
