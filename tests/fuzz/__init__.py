"""Hostile models and plans by number: `python -m tests.fuzz --models N --plans N --seed S`.

Each case is made from (seed, number) alone. It has to end in a valid plan or a WebrtError, within 10 s of processor
time and the memory limit; a plan has to get the same verdict from webrt/validate.py and from player.js.
"""
