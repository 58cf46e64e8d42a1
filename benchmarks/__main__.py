"""What `make bench` runs: webrt beside its rivals (benchmarks/compare.py). Others by name:

python -m benchmarks.correctness --help     placements, times and errors, natively
python -m benchmarks.dispatches --help      dispatches per run
python -m benchmarks.first_answer --help    a page, from navigation to the first answer
python -m benchmarks.sandbox --help         what confining a compilation costs
"""

from benchmarks.compare import main

if __name__ == "__main__":
    main()
