# Command-line tools. Scripts are installed as they are.
dist_bin_SCRIPTS = tools/ch3-offload-graft tools/ch3-offload-imb tools/ch3-offload-perf
dist_man_MANS += docs/man/ch3-offload.7 docs/man/ch3-offload-graft.1 docs/man/ch3-offload-imb.1 \
	docs/man/ch3-offload-perf.1
# What ch3-offload-perf compiles.
dist_pkgdata_DATA = bench/ch3_offload_bench.c
EXTRA_DIST += tools/quickstart

# For programs under valgrind: docs/valgrind.md.
dist_pkgdata_DATA += tools/valgrind.supp

# docs/clusters.md.
modulefilesdir = $(pkgdatadir)/modulefiles
modulefiles_DATA = tools/modulefiles/ch3-offload
EXTRA_DIST += tools/modulefile.in
CLEANFILES += tools/modulefiles/ch3-offload
tools/modulefiles/ch3-offload: tools/modulefile.in Makefile
	$(AM_V_GEN)mkdir -p $(@D) && sed -e 's|@prefix[@]|$(prefix)|' -e 's|@bindir[@]|$(bindir)|' \
	  -e 's|@libdir[@]|$(libdir)|' $(srcdir)/tools/modulefile.in >$@

# The network processor of a node: what NIC=process runs.
bin_PROGRAMS += tools/ch3-offload-nicd
tools_ch3_offload_nicd_SOURCES = tools/ch3_offload_nicd.cc
tools_ch3_offload_nicd_LDADD = libcore.la
dist_man_MANS += docs/man/ch3-offload-nicd.1
systemduserunitdir = $(prefix)/lib/systemd/user
systemduserunit_DATA = tools/ch3-offload-nicd.service
EXTRA_DIST += tools/ch3-offload-nicd.service.in
CLEANFILES += tools/ch3-offload-nicd.service
tools/ch3-offload-nicd.service: tools/ch3-offload-nicd.service.in Makefile
	$(AM_V_GEN)sed 's|@bindir[@]|$(bindir)|' $(srcdir)/tools/ch3-offload-nicd.service.in >$@

if HAVE_TOOLS

# What the tools share, and their tests use.
noinst_LIBRARIES = libtools.a
tools_sources = \
	tools/check/agent.cc \
	tools/check/agent.h \
	tools/check/check_lines.cc \
	tools/check/check_lines.h \
	tools/check/check_report.cc \
	tools/check/check_report.h \
	tools/check/checked.cc \
	tools/check/checked.h \
	tools/check/judge.cc \
	tools/check/judge.h \
	tools/check/link_facts.cc \
	tools/check/link_facts.h \
	tools/check/node_check.cc \
	tools/check/node_check.h \
	tools/check/node_process.cc \
	tools/check/node_process.h \
	tools/check/pair_tester.cc \
	tools/check/pair_tester.h \
	tools/info_choices.cc \
	tools/info_choices.h \
	tools/info_report.cc \
	tools/info_report.h \
	tools/json_writer.cc \
	tools/json_writer.h \
	tools/node_probe.cc \
	tools/node_probe.h \
	tools/program.h \
	tools/text_table.cc \
	tools/text_table.h \
	tools/trace_clock.cc \
	tools/trace_clock.h \
	tools/trace_facts.cc \
	tools/trace_facts.h \
	tools/trace_file.cc \
	tools/trace_file.h \
	tools/trace_job.cc \
	tools/trace_job.h \
	tools/trace_join.cc \
	tools/trace_join.h \
	tools/trace_json.cc \
	tools/trace_json.h \
	tools/trace_lanes.h \
	tools/trace_show.cc \
	tools/trace_show.h \
	tools/trace_summary.cc \
	tools/trace_summary.h \
	tools/trace_way.cc \
	tools/trace_way.h
libtools_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools $(TOOLS_CFLAGS)

bin_PROGRAMS += tools/ch3-offload-info tools/ch3-offload-trace
tools_ch3_offload_info_SOURCES = tools/ch3_offload_info.cc
tools_ch3_offload_info_CPPFLAGS = $(libtools_a_CPPFLAGS)
tools_ch3_offload_info_LDADD = libtools.a libcore.la $(TOOLS_LIBS)
tools_ch3_offload_trace_SOURCES = tools/ch3_offload_trace.cc
tools_ch3_offload_trace_CPPFLAGS = $(libtools_a_CPPFLAGS)
tools_ch3_offload_trace_LDADD = libtools.a libcore.la $(TOOLS_LIBS)
dist_man_MANS += docs/man/ch3-offload-info.1 docs/man/ch3-offload-trace.1

# Without Lua it could only say so.
if HAVE_LUA
bin_PROGRAMS += tools/ch3-offload-module
tools_ch3_offload_module_SOURCES = tools/ch3_offload_module.cc
tools_ch3_offload_module_CPPFLAGS = $(libtools_a_CPPFLAGS)
tools_ch3_offload_module_LDADD = libtools.a libcore.la $(TOOLS_LIBS)
dist_man_MANS += docs/man/ch3-offload-module.1
endif

endif

# The glue, where an installed ch3-offload-graft looks for it. Its list of files is the channel's own Makefile.mk.
# What the graft makes control variables of lies beside it, as in the sources.
# And the pages and examples, which the man pages name. In the tree, the pages are in two folders; installed, in one.
glue_source = $(top_srcdir)/src/ch3_offload/mpich
installed_glue = $(DESTDIR)$(pkgdatadir)/glue
dist_pkgdata_DATA += src/ch3_offload/ch3_offload_settings.awk src/ch3_offload/ch3_offload_settings.def

install-data-local:
	@files=`CH3_OFFLOAD_GLUE='$(glue_source)' '$(top_srcdir)/tools/ch3-offload-graft' --list` || exit 1; \
	for file in $$files; do \
	  $(MKDIR_P) "$(installed_glue)/`dirname $$file`" && \
	  $(INSTALL_DATA) "$(glue_source)/$$file" "$(installed_glue)/$$file" || exit 1; \
	done
	@$(MKDIR_P) '$(DESTDIR)$(docdir)/examples' '$(DESTDIR)$(docdir)/results'
	$(INSTALL_DATA) $(top_srcdir)/docs/*.md $(top_srcdir)/docs/*.svg $(top_srcdir)/*.md $(top_srcdir)/LICENSE \
	  '$(DESTDIR)$(docdir)'
	sed -i -e 's,](\.\./,](,g' -e 's,\(^\|[[(` ]\)docs/,\1,g' '$(DESTDIR)$(docdir)'/*.md
	$(INSTALL_DATA) $(top_srcdir)/docs/examples/*.c '$(DESTDIR)$(docdir)/examples'
	@$(MKDIR_P) '$(DESTDIR)$(docdir)/examples/modules'
	$(INSTALL_DATA) $(top_srcdir)/docs/examples/modules/*.lua '$(DESTDIR)$(docdir)/examples/modules'
	$(INSTALL_DATA) $(top_srcdir)/docs/results/*.md '$(DESTDIR)$(docdir)/results'

uninstall-local:
	rm -rf "$(installed_glue)"
	rm -f '$(DESTDIR)$(docdir)'/*.md '$(DESTDIR)$(docdir)'/*.svg '$(DESTDIR)$(docdir)'/LICENSE
	rm -rf '$(DESTDIR)$(docdir)/examples' '$(DESTDIR)$(docdir)/results'
