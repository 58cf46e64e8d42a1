"""What `make bench` runs: webrt beside its rivals (benchmarks/compare.py). The others, each with --help:

* `python -m benchmarks.correctness`: placements, times and errors, natively
* `python -m benchmarks.dispatches`: dispatches per run
* `python -m benchmarks.first_answer`: pages, from navigation to the first answer
* `python -m benchmarks.growth`: compile time against the number of nodes
* `python -m benchmarks.host_cost`: what a run costs the host, per dispatch
* `python -m benchmarks.kernels`: rates of single operators beside the peaks of the adapter
* `python -m benchmarks.levels`: answers at every level and without each pass
* `python -m benchmarks.memory`: the memory of runs
* `python -m benchmarks.streaming`: a large plan in a page, memory while it loads
* `python -m benchmarks.sandbox`: what confining a compilation costs
"""

from benchmarks.compare import main

if __name__ == "__main__":
    main()
