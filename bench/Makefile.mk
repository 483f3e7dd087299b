# The MPI benchmarks are compiled by the built mpicc (bench/compare, quickstart), never by make.
EXTRA_DIST += bench

# `make bench/pin_down_bench`; bench/pin-down runs it.
if HAVE_BENCHMARK
EXTRA_PROGRAMS = bench/pin_down_bench
CLEANFILES += bench/pin_down_bench
bench_pin_down_bench_SOURCES = bench/pin_down_bench.cc
bench_pin_down_bench_CPPFLAGS = $(AM_CPPFLAGS) $(BENCHMARK_CFLAGS)
bench_pin_down_bench_LDADD = libcore.la $(BENCHMARK_LIBS)
endif
