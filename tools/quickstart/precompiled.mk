# make -f precompiled.mk precompiled, in a build directory of MPICH: its header mpiimpl.h, with which nearly all of
# its sources begin, for gcc to read instead of half a megabyte of text. Compiling these sources takes half of the
# processor time then.
#
# The header is one in the build directory, for MPICH's sources may be anybody's: it includes that of the sources, and
# the compiler finds it first. It stays: what was compiled depends on it. With -MD, the compiler knows what the
# precompiled header was made of, and with -fpch-deps it says so of each object.

include Makefile

header = $(abs_top_builddir)/src/include/mpiimpl.h

precompiled: $(header).gch
$(header): Makefile
	echo '#include "$(abspath $(top_srcdir))/src/include/mpiimpl.h"' >$@
$(header).gch: $(header)
	$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(lib_libmpi_la_CPPFLAGS) $(CPPFLAGS) $(lib_libmpi_la_CFLAGS) \
	  $(CFLAGS) -fPIC -DPIC -MD -MF $(header).d -x c-header $< -o $@
.PHONY: precompiled
