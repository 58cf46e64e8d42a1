"""What `make bench` runs: every public model natively, a JSON row each. Others by name:

python -m benchmarks.correctness --help     placements, times and errors, of the public models or of a folder
python -m benchmarks.dispatches --help      dispatches per run against the nodes that onnxruntime keeps
python -m benchmarks.first_answer --help    a page without Python, from navigation to the first answer
python -m benchmarks.sandbox --help         what confining a compilation costs
"""

from benchmarks.correctness import main

if __name__ == "__main__":
    main()
