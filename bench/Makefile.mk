# The MPI benchmarks are compiled by the built mpicc (bench/compare, quickstart), never by make.
EXTRA_DIST += bench
