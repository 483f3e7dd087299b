# libch3offload. Add a source to the list of its layer (DESIGN: dependencies point down only).

rdma_sources = \
	src/rdma/provider.h \
	src/rdma/status.cc \
	src/rdma/status.h

nic_sources = \
	src/nic/engine.h \
	src/nic/intrusive_list.h \
	src/nic/keyed_queues.h \
	src/nic/match_bits.h \
	src/nic/matcher.cc \
	src/nic/matcher.h \
	src/nic/pool.h \
	src/nic/trace.cc \
	src/nic/trace.h

channel_sources = \
	src/ch3_offload/ch3_offload.h

# Every object of the core, with its C++ symbols: what the tests link.
noinst_LTLIBRARIES += libcore.la
libcore_la_SOURCES = $(rdma_sources) $(nic_sources) $(channel_sources)

include_HEADERS = src/ch3_offload/ch3_offload.h

# What MPICH links. C programs must not need a C++ runtime: only ch3_offload_* is exported, and libstdc++ and
# libgcc are linked in statically. libtool's C++ mode always appends the shared ones, so this library is
# linked in its C mode, where nothing is appended; test/abi checks the result.
# -version-info: current:revision:age as libtool's manual has it; raise on each change of ch3_offload.h.
lib_LTLIBRARIES += libch3offload.la
libch3offload_la_SOURCES =
nodist_EXTRA_libch3offload_la_SOURCES = none.cc
libch3offload_la_LIBADD = libcore.la -lm
libch3offload_la_DEPENDENCIES = libcore.la $(top_srcdir)/src/libch3offload.map
libch3offload_la_LINK = $(LIBTOOL) $(AM_V_lt) --tag=CC $(AM_LIBTOOLFLAGS) $(LIBTOOLFLAGS) --mode=link \
	$(CC) $(CFLAGS) $(AM_LDFLAGS) $(libch3offload_la_LDFLAGS) $(LDFLAGS) -o $@
libch3offload_la_LDFLAGS = -version-info 1:0:0 $(cxx_runtime_flags) \
	-Wl,--version-script=$(top_srcdir)/src/libch3offload.map -Wl,-z,relro -Wl,-z,now
if SANITIZED
# The sanitizers' runtimes belong to the C++ compiler and to the program: only the tests' library matters here.
cxx_runtime_flags = -Wl,-lstdc++
else
cxx_runtime_flags = -Wl,--push-state,-Bstatic,-lstdc++,--pop-state -Wc,-static-libgcc -Wl,-z,defs
endif

EXTRA_DIST += \
	src/ch3_offload/mpich \
	src/libch3offload.map
