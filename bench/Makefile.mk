# The MPI benchmarks are compiled by the built mpicc (ch3-offload-perf, the scripts here), never by make.
EXTRA_DIST += bench

EXTRA_PROGRAMS =

# `make bench/pin_down_bench`; bench/pin-down runs it.
if HAVE_BENCHMARK
EXTRA_PROGRAMS += bench/pin_down_bench
CLEANFILES += bench/pin_down_bench
bench_pin_down_bench_SOURCES = bench/pin_down_bench.cc
bench_pin_down_bench_CPPFLAGS = $(AM_CPPFLAGS) $(BENCHMARK_CFLAGS)
bench_pin_down_bench_LDADD = libcore.la $(BENCHMARK_LIBS)
endif

# `make bench/many_peers_bench`.
if HAVE_VERBS
EXTRA_PROGRAMS += bench/many_peers_bench
CLEANFILES += bench/many_peers_bench
bench_many_peers_bench_SOURCES = bench/many_peers_bench.cc $(many_peers_sources)
bench_many_peers_bench_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test $(VERBS_CFLAGS)
bench_many_peers_bench_LDADD = $(fake_verbs_objects) libcore.la
endif

# `make bench/broadcast_simulation`; `make check` makes it, too.
if HAVE_TOOLS
if HAVE_LUA
bench_broadcast_simulation_SOURCES = bench/broadcast_simulation.cc
bench_broadcast_simulation_CPPFLAGS = $(AM_CPPFLAGS) $(TOOLS_CFLAGS)
bench_broadcast_simulation_LDADD = libcore.la $(TOOLS_LIBS)
endif
endif
