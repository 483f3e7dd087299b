# Tests that need no MPICH: `make check`. One GoogleTest program per area; list each file.
# Tests over a built MPICH are the scripts test/*/run and test/mpich/run-mpich-tests, run by `quickstart check`.

gtest_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/test $(GTEST_CFLAGS) -include test/googletest.h

# If test/googletest.h.gch was compiled with the same flags, the compiler reads that instead. Each file takes
# 1 s less then. `quickstart check` makes it. It never comes from a cache of compilations: clang refuses it if
# the header has another time than the one that it was made from.
# The one before goes first: -include would read it.
# AHEAD_FLAGS: empty, or from the command line what the compiler needs to do more of the work ahead.
test/googletest.h.gch: test/googletest.h
	$(AM_V_GEN)$(MKDIR_P) test && rm -f $@ && CCACHE_DISABLE=1 $(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(gtest_cppflags) $(CPPFLAGS) \
	  $(AM_CXXFLAGS) $(CXXFLAGS) $(AHEAD_FLAGS) -MD -MF test/googletest.d -MT $@ -x c++-header -o $@ \
	  $(top_srcdir)/test/googletest.h
-include test/googletest.d
CLEANFILES += test/googletest.d test/googletest.h.gch
EXTRA_DIST += test/googletest.h

# Scripts that check the sources, the pages and the built library.
script_tests = \
	test/docs/columns \
	test/docs/interfaces \
	test/docs/links \
	test/docs/man_pages \
	test/docs/settings \
	test/docs/wire_format \
	test/exported_symbols \
	test/graft/graft_test.sh \
	test/include_rules \
	test/instructions/judging_test \
	test/quickstart/check_parts \
	test/quickstart/conformance_page \
	test/quickstart/debian_packages \
	test/quickstart/mpich_options \
	test/quickstart/mpich_version \
	test/quickstart/spack_recipes \
	test/seeded-faults/apply \
	test/tools/versions
dist_check_SCRIPTS += $(script_tests)
TESTS += $(script_tests)
EXTRA_DIST += test/seeded-faults

dist_check_SCRIPTS += test/lab/judging_test
if !SANITIZED
TESTS += test/lab/judging_test
endif

if HAVE_TOOLS
dist_check_SCRIPTS += test/tools/info_commands test/tools/trace_commands
TESTS += test/tools/info_commands test/tools/trace_commands
dist_check_SCRIPTS += test/tools/module_commands test/tools/broadcast_simulation_commands
if HAVE_LUA
TESTS += test/tools/module_commands test/tools/broadcast_simulation_commands
check_PROGRAMS += bench/broadcast_simulation
endif
endif
EXTRA_DIST += test/tools/trace_commands.py

# A verbs device in software. A program that lists it has its own libibverbs.
if HAVE_VERBS
fake_verbs_sources = \
	test/rdma/verbs/fake_verbs.h \
	test/rdma/verbs/fake_verbs_completion.cc \
	test/rdma/verbs/fake_verbs_control.cc \
	test/rdma/verbs/fake_verbs_device.cc \
	test/rdma/verbs/fake_verbs_events.cc \
	test/rdma/verbs/fake_verbs_memory.cc \
	test/rdma/verbs/fake_verbs_modify.cc \
	test/rdma/verbs/fake_verbs_names.cc \
	test/rdma/verbs/fake_verbs_network.h \
	test/rdma/verbs/fake_verbs_objects.h \
	test/rdma/verbs/fake_verbs_post.cc \
	test/rdma/verbs/fake_verbs_progress.cc \
	test/rdma/verbs/fake_verbs_queue_pair.cc \
	test/rdma/verbs/fake_verbs_receive.cc \
	test/rdma/verbs/fake_verbs_transport.cc

# Linked as objects: a library would come behind the real libibverbs, whose functions would be taken.
check_LIBRARIES += test/libfake_verbs.a
test_libfake_verbs_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test $(VERBS_CFLAGS)
fake_verbs_objects = $(test_libfake_verbs_a_OBJECTS)

# A job of many processes over that device.
many_peers_sources = \
	test/counting_allocator.cc \
	test/counting_allocator.h \
	test/rdma/seeded_random.h \
	test/rdma/verbs/many_peers.cc \
	test/rdma/verbs/many_peers.h \
	test/rdma/verbs/simulated_descriptors.cc \
	test/rdma/verbs/simulated_descriptors.h
endif

# The provider and the buffers that the engine is tested with.
fake_provider_sources = \
	test/rdma/fake_network.cc \
	test/rdma/fake_network.h \
	test/rdma/fake_provider.cc \
	test/rdma/fake_provider.h \
	test/rdma/seeded_random.h
payload_sources = test/engine/payload_buffer.cc test/engine/payload_buffer.h

check_LIBRARIES += test/libengine_world.a
engine_world_sources = \
	$(fake_provider_sources) \
	$(payload_sources) \
	test/engine/page_arena.cc \
	test/engine/page_arena.h
test_libengine_world_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test

# The fuzz targets, each with its own sources. `make check` runs them over their corpus, with any compiler;
# `make fuzz` searches on with libFuzzer, `make fuzz-corpus` keeps what that found.
fuzz_common_sources = test/fuzz/target.cc test/fuzz/target.h
fuzz_stand_in_sources = test/fuzz/stand_in_provider.cc test/fuzz/stand_in_provider.h
fuzz_card_sources = test/fuzz/card_target.cc
fuzz_client_sources = test/fuzz/client_target.cc
fuzz_engine_sources = \
	test/fuzz/engine_seeds.cc \
	test/fuzz/engine_seeds.h \
	test/fuzz/engine_target.cc \
	test/fuzz/engine_target.h \
	test/fuzz/wire_rules.cc \
	test/fuzz/wire_rules.h
fuzz_entries_sources = test/fuzz/entries_target.cc
fuzz_handshake_sources = test/fuzz/handshake_target.cc
fuzz_messages_sources = \
	test/fuzz/messages_target.cc \
	src/active_messages/arguments.cc \
	src/active_messages/message.cc
fuzz_processes_sources = test/fuzz/frame_rules.h test/fuzz/processes_target.cc
fuzz_ring_sources = test/fuzz/ring_target.cc
fuzz_settings_sources = test/fuzz/settings_target.cc
fuzz_targets = card client engine entries handshake messages processes ring settings

check_PROGRAMS += test/fuzz/replay
TESTS += test/fuzz/replay
replay_sources = \
	test/fuzz/replay.cc \
	$(fuzz_common_sources) \
	$(fuzz_stand_in_sources) \
	$(fuzz_card_sources) \
	$(fuzz_client_sources) \
	$(fuzz_engine_sources) \
	$(fuzz_entries_sources) \
	$(fuzz_handshake_sources) \
	$(fuzz_messages_sources) \
	$(fuzz_processes_sources) \
	$(fuzz_ring_sources) \
	$(fuzz_settings_sources)
test_fuzz_replay_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test
test_fuzz_replay_LDADD = test/libengine_world.a libcore.la

if HAVE_ISAL
fuzz_checked_sources = test/fuzz/checked_target.cc
fuzz_targets += checked
replay_sources += $(fuzz_checked_sources)
endif

if HAVE_LUA
fuzz_module_sources = test/fuzz/module_target.cc
fuzz_targets += module
replay_sources += $(fuzz_module_sources)
endif

if HAVE_TOOLS
fuzz_trace_sources = test/fuzz/trace_target.cc test/tools/trace_sample.h
fuzz_trace_tools = \
	tools/json_writer.cc \
	tools/text_table.cc \
	tools/trace_clock.cc \
	tools/trace_facts.cc \
	tools/trace_file.cc \
	tools/trace_job.cc \
	tools/trace_join.cc \
	tools/trace_json.cc \
	tools/trace_show.cc \
	tools/trace_summary.cc \
	tools/trace_way.cc
fuzz_targets += trace
replay_sources += $(fuzz_trace_sources)
test_fuzz_replay_CPPFLAGS += -I$(top_srcdir)/tools $(TOOLS_CFLAGS)
test_fuzz_replay_LDADD += libtools.a libcore.la $(TOOLS_LIBS)
endif

if HAVE_VERBS
fuzz_frames_sources = test/fuzz/frame_rules.h test/fuzz/frames_target.cc
fuzz_verbs_sources = test/fuzz/verbs_target.cc
fuzz_targets += frames verbs
replay_sources += $(fuzz_frames_sources) $(fuzz_verbs_sources)
test_fuzz_replay_CPPFLAGS += $(VERBS_CFLAGS)
test_fuzz_replay_LDADD += $(fake_verbs_objects)
endif

fuzz fuzz-corpus: test/fuzz/replay
	@$(MAKE) -f $(top_srcdir)/test/fuzz/fuzz.mk --no-print-directory $@ \
	  top_srcdir='$(top_srcdir)' targets='$(fuzz_targets)' \
	  common_sources='$(core_sources) $(fuzz_common_sources)' \
	  card_sources='$(fuzz_card_sources) $(fuzz_stand_in_sources)' \
	  checked_sources='$(fuzz_checked_sources) $(fuzz_stand_in_sources)' \
	  client_sources='$(fuzz_client_sources)' \
	  engine_sources='$(fuzz_engine_sources) $(fuzz_stand_in_sources) $(payload_sources)' \
	  entries_sources='$(fuzz_entries_sources) $(fuzz_stand_in_sources)' \
	  frames_sources='$(fuzz_frames_sources) $(fake_verbs_sources)' \
	  handshake_sources='$(fuzz_handshake_sources)' \
	  messages_sources='$(fuzz_messages_sources)' \
	  module_sources='$(fuzz_module_sources)' \
	  processes_sources='$(fuzz_processes_sources)' \
	  ring_sources='$(fuzz_ring_sources)' \
	  settings_sources='$(fuzz_settings_sources)' \
	  trace_sources='$(fuzz_trace_sources) $(fuzz_trace_tools)' \
	  verbs_sources='$(fuzz_verbs_sources) $(fake_verbs_sources)' \
	  tools_flags='$(TOOLS_CFLAGS)' verbs_flags='$(VERBS_CFLAGS) $(HWLOC_CFLAGS) $(LUA_CFLAGS)' \
	  common_libs='$(VERBS_LIBS) $(SODIUM_LIBS) $(ISAL_LIBS) $(HWLOC_LIBS)' \
	  trace_libs='$(TOOLS_LIBS)'

clean-local:
	rm -rf fuzz

.PHONY: check-address check-beside-others check-optimized check-threads fuzz fuzz-corpus soak

EXTRA_DIST += \
	test/fuzz/README.md \
	test/fuzz/corpus \
	test/fuzz/fuzz.mk \
	test/fuzz/fuzzer_main.cc \
	test/fuzz/run

if HAVE_GTEST

unit_tests_sources = \
	test/ch3_offload/channel_test.cc \
	test/ch3_offload/counters_test.cc \
	test/ch3_offload/config_test.cc \
	test/ch3_offload/launcher_test.cc \
	test/ch3_offload/nic_choice_test.cc \
	test/ch3_offload/nicd_lone_process_test.cc \
	test/ch3_offload/partitions_test.cc \
	test/ch3_offload/settings_files_test.cc \
	test/rdma/few_descriptors.h \
	test/ch3_offload/nicd_newcomers_test.cc \
	test/ch3_offload/nicd_targets_test.cc \
	test/ch3_offload/nicd_targets_world.h \
	test/ch3_offload/nicd_test.cc \
	test/ch3_offload/nicd_world.h \
	test/ch3_offload/job_report_test.cc \
	test/ch3_offload/node_settings_test.cc \
	test/rdma/shm/unix_socket_test.cc \
	test/nic/cores_test.cc \
	test/nic/node_processes_test.cc \
	test/nic/parting_test.cc \
	test/nic/port_memory_test.cc \
	test/nic/process_driver_test.cc \
	test/rdma/processor_set_test.cc \
	test/rdma/write_choice_test.cc \
	test/ch3_offload/settings_test.cc \
	test/nic/wait_policy_test.cc \
	test/engine/card_test.cc \
	test/engine/matcher_test.cc \
	test/engine/payload_blocks_test.cc \
	test/engine/intrusive_list_test.cc \
	test/engine/peer_test.cc \
	test/engine/pool_test.cc \
	test/engine/states_test.cc \
	test/engine/trace_contents.h \
	test/engine/trace_test.cc \
	test/nic/traced_port_test.cc \
	test/rdma/fork_closing_test.cc \
	test/rdma/monotonic_clock_test.cc \
	test/rdma/verbs/port_wish_test.cc

check_PROGRAMS += test/unit_tests
TESTS += test/unit_tests
nodist_EXTRA_test_unit_tests_SOURCES = none.cc
test_unit_tests_CPPFLAGS = $(gtest_cppflags)
test_unit_tests_LDADD = libcore.la $(GTEST_LIBS)

if HAVE_TOOLS
check_PROGRAMS += test/tools_tests
TESTS += test/tools_tests
tools_tests_sources = \
	test/tools/check_test.cc \
	test/tools/info_test.cc \
	test/tools/pair_tester_test.cc \
	test/tools/trace_clock_test.cc \
	test/tools/trace_file_test.cc \
	test/tools/trace_job_test.cc \
	test/tools/trace_sample.h
test_tools_tests_CPPFLAGS = $(gtest_cppflags) -I$(top_srcdir)/tools $(TOOLS_CFLAGS)
test_tools_tests_LDADD = libtools.a libcore.la $(TOOLS_LIBS) $(GTEST_LIBS)
endif

# A process with libportals over the port of an engine.
check_LIBRARIES += test/libportals_world.a
portals_world_sources = \
	test/portals/engine_port.cc \
	test/portals/portals_world.cc \
	test/portals/portals_world.h \
	test/portals/test_port.h
test_libportals_world_a_CPPFLAGS = $(gtest_cppflags)
portals_world_objects = test/libportals_world.a libportals_calls.la test/libengine_world.a libcore.la $(GTEST_LIBS)

check_PROGRAMS += test/portals_tests test/active_messages_tests
TESTS += test/portals_tests test/active_messages_tests
portals_tests_sources = \
	test/portals/counter_calls_test.cc \
	test/portals/descriptor_calls_test.cc \
	test/portals/entry_calls_test.cc \
	test/portals/handle_table_test.cc \
	test/portals/hostile_handles_test.cc \
	test/portals/interface_calls_test.cc \
	test/portals/movement_calls_test.cc \
	test/portals/queue_calls_test.cc \
	test/portals/table_calls_test.cc \
	test/portals/triggered_calls_test.cc \
	test/portals/waiting_test.cc
test_portals_tests_CPPFLAGS = $(gtest_cppflags)
test_portals_tests_LDADD = $(portals_world_objects)

active_messages_tests_sources = \
	test/active_messages/arguments_test.cc \
	test/active_messages/endpoint_test.cc \
	test/active_messages/endpoint_world.h \
	test/active_messages/regions_test.cc \
	test/active_messages/send_stream_test.cc
test_active_messages_tests_CPPFLAGS = $(gtest_cppflags)
test_active_messages_tests_LDADD = $(portals_world_objects)

# The header is one of C. Compiled only.
check_LIBRARIES += test/libportals_header.a
test_libportals_header_a_SOURCES = test/active_messages/header_test.c test/portals/header_test.c
test_libportals_header_a_CFLAGS = -std=c99 -Wall -Wextra -pedantic -Werror

# The provider contract, compiled once for the programs that instantiate it.
check_LIBRARIES += test/libcontract.a
test_libcontract_a_SOURCES = \
	test/rdma/contract_world.h \
	test/rdma/provider_contract.cc \
	test/rdma/renumbered_world.h \
	test/rdma/provider_contract.h
test_libcontract_a_CPPFLAGS = $(gtest_cppflags)

shm_tests_sources = \
	test/rdma/shm/hello_test.cc \
	test/rdma/shm/one_connection_test.cc \
	test/rdma/shm/ring_test.cc \
	test/rdma/shm/ring_window_test.cc \
	test/rdma/shm/shared_write_test.cc \
	test/rdma/shm/travelling_chunks_test.cc \
	test/rdma/shm/shm_contract_test.cc \
	test/rdma/shm/shm_fixture.cc \
	test/rdma/shm/shm_fixture.h \
	test/rdma/shm/shm_many_test.cc \
	test/rdma/shm/shm_shortage_test.cc \
	test/rdma/shm/shm_turns_test.cc \
	test/rdma/shm/shm_world.h \
	test/rdma/checked/checksummed_world.h

check_PROGRAMS += test/shm_tests
TESTS += test/shm_tests
nodist_EXTRA_test_shm_tests_SOURCES = none.cc
test_shm_tests_CPPFLAGS = $(gtest_cppflags)
test_shm_tests_LDADD = test/libcontract.a libcore.la $(GTEST_LIBS)

# The fabric that the engine is tested with: its own tests.
check_PROGRAMS += test/fake_tests
TESTS += test/fake_tests
test_fake_tests_SOURCES = \
	test/rdma/checked/checksummed_world.h \
	test/rdma/fake_provider_test.cc \
	test/rdma/fake_world.h
test_fake_tests_CPPFLAGS = $(gtest_cppflags)
test_fake_tests_LDADD = test/libengine_world.a test/libcontract.a libcore.la $(GTEST_LIBS)

# Checksums, over the fabric that damages what it carries.
if HAVE_ISAL
check_PROGRAMS += test/checked_tests
TESTS += test/checked_tests
checked_tests_sources = \
	test/rdma/checked/checked_provider_test.cc \
	test/rdma/checked/sent_frames_test.cc \
	test/rdma/contract_world.h
test_checked_tests_CPPFLAGS = $(gtest_cppflags)
test_checked_tests_LDADD = test/libengine_world.a libcore.la $(GTEST_LIBS)
endif

# The verbs device in software, over itself.
if HAVE_VERBS
check_PROGRAMS += test/fake_verbs_tests
TESTS += test/fake_verbs_tests
fake_verbs_tests_sources = \
	test/rdma/verbs/fake_verbs_connection_end.h \
	test/rdma/verbs/fake_verbs_device_test.cc \
	test/rdma/verbs/fake_verbs_event_test.cc \
	test/rdma/verbs/fake_verbs_fault_test.cc \
	test/rdma/verbs/fake_verbs_loss_test.cc \
	test/rdma/verbs/fake_verbs_test.cc \
	test/rdma/verbs/fake_verbs_world.h
test_fake_verbs_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_fake_verbs_tests_LDADD = $(fake_verbs_objects) $(GTEST_LIBS)

# The verbs provider over it.
check_PROGRAMS += test/verbs_tests
TESTS += test/verbs_tests
verbs_tests_sources = \
	test/ch3_offload/nicd_farewell_test.cc \
	test/ch3_offload/nicd_world.h \
	test/rdma/contract_world.h \
	test/rdma/seeded_random.h \
	test/rdma/verbs/devices/fake_rails.h \
	test/rdma/verbs/devices/port_description_test.cc \
	test/rdma/verbs/devices/port_choice_test.cc \
	test/rdma/verbs/devices/port_selection_test.cc \
	test/rdma/verbs/devices/rail_test.cc \
	test/rdma/verbs/devices/registrations_test.cc \
	test/rdma/verbs/devices/slot_pool_test.cc \
	test/rdma/verbs/hostile_peer.h \
	test/rdma/verbs/transport/link_test.cc \
	test/rdma/verbs/links/link_timer_test.cc \
	test/rdma/verbs/links/links_test.cc \
	test/rdma/verbs/links/links_world.h \
	test/rdma/verbs/marked_list_test.cc \
	test/rdma/verbs/transport/message_buffers_test.cc \
	test/rdma/verbs/transport/transport_test.cc \
	test/rdma/verbs/transport/transport_world.h \
	test/rdma/verbs/verbs_address_test.cc \
	test/rdma/verbs/verbs_fixture.h \
	test/rdma/verbs/verbs_leave_test.cc \
	test/rdma/verbs/verbs_links_test.cc \
	test/rdma/verbs/verbs_peers_test.cc \
	test/rdma/verbs/verbs_rails_test.cc \
	test/rdma/verbs/verbs_set_up_test.cc \
	test/rdma/verbs/verbs_world.h
test_verbs_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_verbs_tests_LDADD = $(fake_verbs_objects) libcore.la $(GTEST_LIBS)

# Introductions of links, over loopback and without any device.
check_PROGRAMS += test/wire_up_tests
TESTS += test/wire_up_tests
wire_up_tests_sources = \
	test/rdma/seeded_random.h \
	test/rdma/verbs/wire_up/link_frames_test.cc
test_wire_up_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_wire_up_tests_LDADD = libcore.la $(GTEST_LIBS)

# The tests of verbs with several threads: a program of its own, so that ThreadSanitizer compiles no others.
check_PROGRAMS += test/verbs_thread_tests
TESTS += test/verbs_thread_tests
test_verbs_thread_tests_SOURCES = \
	test/rdma/contract_world.h \
	test/rdma/verbs/verbs_contract_test.cc \
	test/rdma/verbs/verbs_world.h
test_verbs_thread_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_verbs_thread_tests_LDADD = $(fake_verbs_objects) test/libcontract.a libcore.la $(GTEST_LIBS)

# The same over a real device; run in the lab.
check_PROGRAMS += test/verbs_lab_tests
test_verbs_lab_tests_SOURCES = \
	test/rdma/verbs/verbs_kill_test.cc \
	test/rdma/verbs/verbs_lab_test.cc \
	test/rdma/verbs/verbs_world.h
test_verbs_lab_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_verbs_lab_tests_LDADD = test/libcontract.a libcore.la $(GTEST_LIBS)

# It replaces operator new.
check_PROGRAMS += test/verbs_allocation_tests
TESTS += test/verbs_allocation_tests
verbs_allocation_tests_sources = \
	test/counting_allocator.cc \
	test/counting_allocator.h \
	test/rdma/contract_world.h \
	test/rdma/seeded_random.h \
	test/rdma/verbs/devices/fake_rails.h \
	test/rdma/verbs/devices/registrations_allocation_test.cc \
	test/rdma/verbs/transport/message_buffers_allocation_test.cc \
	test/rdma/verbs/verbs_allocation_test.cc \
	test/rdma/verbs/verbs_fixture.h \
	test/rdma/verbs/verbs_world.h
test_verbs_allocation_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_verbs_allocation_tests_LDADD = $(fake_verbs_objects) libcore.la $(GTEST_LIBS)

# A job of many processes. It replaces operator new, and descriptors.
check_PROGRAMS += test/verbs_scale_tests
TESTS += test/verbs_scale_tests
verbs_scale_tests_sources = $(many_peers_sources) test/rdma/verbs/many_peers_test.cc
test_verbs_scale_tests_CPPFLAGS = $(gtest_cppflags) $(VERBS_CFLAGS)
test_verbs_scale_tests_LDADD = $(fake_verbs_objects) libcore.la $(GTEST_LIBS)
endif

# The pin-down cache: over a model of memory, and over real memory that comes and goes.
check_PROGRAMS += test/dme_tests
TESTS += test/dme_tests
dme_tests_sources = \
	test/dme/cgroup_limit_test.cc \
	test/dme/fork_mark_test.cc \
	test/dme/memory_events_test.cc \
	test/dme/modelled_memory.h \
	test/dme/page_table_test.cc \
	test/dme/pin_budget_test.cc \
	test/dme/pin_down_cache_test.cc
test_dme_tests_CPPFLAGS = $(gtest_cppflags)
if HAVE_UCM
test_dme_tests_CPPFLAGS += -DWITH_UCM
endif
test_dme_tests_LDADD = libcore.la $(GTEST_LIBS)

check_PROGRAMS += test/dme/model_tests
TESTS += test/dme/model_tests
test_dme_model_tests_SOURCES = test/dme/modelled_memory.h test/dme/pin_down_model_test.cc
test_dme_model_tests_CPPFLAGS = $(gtest_cppflags)
test_dme_model_tests_LDADD = libcore.la $(GTEST_LIBS)

if HAVE_UCM
# A sanitizer's malloc gives memory back where nobody sees it.
if !SANITIZED
check_PROGRAMS += test/dme/real_memory
test_dme_real_memory_SOURCES = \
	test/dme/make_pages.cc \
	test/dme/pages_under_test.h \
	test/dme/pinned_pages.h \
	test/dme/real_memory.cc
test_dme_real_memory_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test
if HAVE_VERBS
test_dme_real_memory_SOURCES += test/dme/device_pages.cc test/dme/device_pages.h
test_dme_real_memory_CPPFLAGS += -DWITH_VERBS $(VERBS_CFLAGS)
endif
test_dme_real_memory_LDADD = libcore.la
dist_check_SCRIPTS += test/dme/real_memory_check
TESTS += test/dme/real_memory_check
endif
endif

# Target entries, without an engine.
check_PROGRAMS += test/target_tests
TESTS += test/target_tests
target_tests_sources = \
	test/engine/targets/recording_listener.h \
	test/engine/targets/target_entries.h \
	test/engine/targets/target_atomics_test.cc \
	test/engine/targets/target_event_ring_test.cc \
	test/engine/targets/target_interface_test.cc \
	test/engine/targets/target_list_test.cc \
	test/engine/targets/target_lock_test.cc \
	test/engine/targets/target_model_test.cc \
	test/engine/targets/target_oracle.cc \
	test/engine/targets/target_oracle.h \
	test/engine/targets/target_table_test.cc \
	test/engine/targets/target_triggers_test.cc \
	test/engine/targets/unexpected_headers_test.cc
test_target_tests_CPPFLAGS = $(gtest_cppflags)
test_target_tests_LDADD = libcore.la $(GTEST_LIBS)

# The engine over the fake provider.
check_PROGRAMS += test/engine_tests
TESTS += test/engine_tests
engine_tests_sources = \
	test/engine/engine_cancel_test.cc \
	test/engine/engine_classes_test.cc \
	test/engine/engine_events_test.cc \
	test/engine/engine_failure_test.cc \
	test/engine/engine_flow_test.cc \
	test/engine/engine_fuzz_test.cc \
	test/engine/engine_hostile_test.cc \
	test/engine/engine_introduction_test.cc \
	test/engine/engine_memory_test.cc \
	test/engine/engine_packet_test.cc \
	test/engine/engine_protocol_test.cc \
	test/engine/engine_self_test.cc \
	test/engine/engine_target_close_test.cc \
	test/engine/engine_target_fuzz_test.cc \
	test/engine/engine_target_hostile_test.cc \
	test/engine/engine_target_locks_test.cc \
	test/engine/engine_target_pieces_test.cc \
	test/engine/engine_target_test.cc \
	test/engine/payload_layout_test.cc \
	test/engine/engine_world.h \
	test/engine/event_handler.h \
	test/engine/hostile_targets.h \
	test/engine/observing_provider.h \
	test/engine/target_simulation.cc \
	test/engine/target_simulation.h \
	test/engine/target_simulation_test.cc \
	test/engine/target_world.h \
	test/engine/targets/target_oracle.cc \
	test/engine/targets/target_oracle.h \
	test/engine/targets/recording_listener.h \
	test/engine/forged_messages.h \
	test/engine/hostile_world.h \
	test/engine/lane_test.cc \
	test/engine/trace_contents.h \
	test/rdma/contract_world.h
test_engine_tests_CPPFLAGS = $(gtest_cppflags)
test_engine_tests_LDADD = test/libengine_world.a libcore.la $(GTEST_LIBS)

# Where a network processor's thread goes.
if HAVE_HWLOC
check_PROGRAMS += test/placement_tests
TESTS += test/placement_tests
placement_tests_sources = \
	test/nic/placement_test.cc \
	test/nic/synthetic_topology.h \
	test/nic/topology_test.cc
test_placement_tests_CPPFLAGS = $(gtest_cppflags) $(HWLOC_CFLAGS)
test_placement_tests_LDADD = libcore.la $(HWLOC_LIBS) $(GTEST_LIBS)
endif

# Ports through rings. The thread driver needs providers of its own for each thread.
check_PROGRAMS += test/nic_tests
TESTS += test/nic_tests
nic_tests_sources = \
	test/ch3_offload/windows_test.cc \
	test/nic/client_memory_test.cc \
	test/nic/client_shares_test.cc \
	test/nic/shared_arena_test.cc \
	test/nic/neighbour_memory_test.cc \
	test/nic/exchange_test.cc \
	test/nic/fake_process_book.h \
	test/nic/fencing_test.cc \
	test/nic/host_targets_test.cc \
	test/nic/hostile_targets_test.cc \
	test/nic/kernel_reach_test.cc \
	test/nic/late_memory.h \
	test/nic/offered_copies_test.cc \
	test/nic/ring_port_test.cc \
	test/nic/runner_relay_test.cc \
	test/nic/schedule_runner_test.cc \
	test/nic/schedule_world.h \
	test/nic/staged_schedule_test.cc \
	test/nic/target_ports_test.cc \
	test/nic/other_memory.h \
	test/nic/two_clients.h \
	test/nic/target_addresses_test.cc \
	test/nic/target_driver.h \
	test/nic/target_ports_world.h \
	test/nic/target_server_test.cc \
	test/nic/nic_thread_test.cc \
	test/nic/processor_wait_test.cc \
	test/nic/short_wait.h \
	test/nic/waiter_test.cc \
	test/ch3_offload/call_driven_test.cc \
	test/ch3_offload/foreign_processes_test.cc \
	test/ch3_offload/process_thread_test.cc \
	test/nic/target_threads_test.cc \
	test/nic/thread_driver_test.cc \
	test/rdma/contract_world.h \
	test/rdma/shm/shm_world.h
test_nic_tests_CPPFLAGS = $(gtest_cppflags)
test_nic_tests_LDADD = test/libcontract.a test/libengine_world.a libcore.la $(GTEST_LIBS)

# Modules: alone, in simulated groups, and in processors of every driver.
if HAVE_LUA
check_PROGRAMS += test/modules_tests
TESTS += test/modules_tests
modules_tests_sources = \
	test/modules/module_runner_test.cc \
	test/modules/module_test.cc \
	test/modules/module_world.h \
	test/modules/simulated_group_test.cc \
	test/modules/tree_test.cc
test_modules_tests_CPPFLAGS = $(gtest_cppflags)
test_modules_tests_LDADD = test/libcontract.a test/libengine_world.a libcore.la $(GTEST_LIBS)
endif

# Introductions, and those of processes that know each other by physical ids.
check_PROGRAMS += test/introduction_tests
TESTS += test/introduction_tests
introduction_tests_sources = \
	test/nic/introduced_engines_test.cc \
	test/nic/introductions_test.cc \
	test/nic/introductions_world.h \
	test/nic/process_frames_test.cc \
	test/nic/user_key_test.cc \
	test/rdma/introduction/frame_stream_test.cc \
	test/rdma/introduction/frames_test.cc \
	test/rdma/introduction/host_address_test.cc \
	test/rdma/introduction/listening_test.cc \
	test/rdma/few_descriptors.h \
	test/rdma/introduction/socket_introducer_test.cc \
	test/rdma/introduction/test_protocol.h \
	test/rdma/introduction/transcript_test.cc
test_introduction_tests_CPPFLAGS = $(gtest_cppflags)
test_introduction_tests_LDADD = libcore.la $(GTEST_LIBS)

# The TCP provider, over loopback.
if HAVE_SODIUM
check_PROGRAMS += test/tcp_tests
TESTS += test/tcp_tests
tcp_tests_sources = \
	test/rdma/contract_world.h \
	test/rdma/seeded_random.h \
	test/rdma/tcp/hostile_tcp_fixture.h \
	test/rdma/tcp/hostile_tcp_peer.h \
	test/rdma/tcp/tcp_address_test.cc \
	test/rdma/tcp/tcp_fixture.h \
	test/rdma/tcp/tcp_hostile_test.cc \
	test/rdma/tcp/tcp_landings_test.cc \
	test/rdma/tcp/tcp_outbox_test.cc \
	test/rdma/few_descriptors.h \
	test/rdma/tcp/tcp_provider_test.cc \
	test/rdma/tcp/tcp_silence_test.cc \
	test/rdma/tcp/tcp_world.h
test_tcp_tests_CPPFLAGS = $(gtest_cppflags)
test_tcp_tests_LDADD = libcore.la $(GTEST_LIBS)

# Its contract, also with several threads: a program of its own, so that ThreadSanitizer compiles no others.
check_PROGRAMS += test/tcp_thread_tests
TESTS += test/tcp_thread_tests
test_tcp_thread_tests_SOURCES = \
	test/rdma/checked/checksummed_world.h \
	test/rdma/contract_world.h \
	test/rdma/renumbered_world.h \
	test/rdma/tcp/tcp_contract_test.cc \
	test/rdma/tcp/tcp_world.h
test_tcp_thread_tests_CPPFLAGS = $(gtest_cppflags)
test_tcp_thread_tests_LDADD = test/libcontract.a libcore.la $(GTEST_LIBS)
endif

# What stands in for a missing library. distcheck configures --without-sodium --without-verbs --without-ucm
# --without-hwloc --without-lua --without-isal.
if SOMETHING_ABSENT
check_PROGRAMS += test/absent_tests
TESTS += test/absent_tests
absent_test_sources =
if !HAVE_SODIUM
absent_test_sources += test/rdma/tcp/tcp_absent_test.cc
endif
if !HAVE_VERBS
absent_test_sources += test/rdma/verbs/verbs_absent_test.cc
endif
if !HAVE_UCM
absent_test_sources += test/dme/memory_events_absent_test.cc
endif
if !HAVE_HWLOC
absent_test_sources += test/nic/topology_absent_test.cc
endif
if !HAVE_ISAL
absent_test_sources += test/rdma/checked/checksum_absent_test.cc
endif
if !HAVE_LUA
absent_test_sources += test/modules/module_absent_test.cc
endif
test_absent_tests_SOURCES = $(absent_test_sources)
test_absent_tests_CPPFLAGS = $(gtest_cppflags)
test_absent_tests_LDADD = libcore.la $(GTEST_LIBS)
endif

# Replaces operator new: a program of its own.
check_PROGRAMS += test/allocation_tests
TESTS += test/allocation_tests
allocation_tests_sources = \
	test/counting_allocator.cc \
	test/counting_allocator.h \
	test/engine/allocation_test.cc \
	test/engine/matcher_allocation_test.cc \
	test/engine/targets/recording_listener.h \
	test/engine/targets/target_allocation_test.cc \
	test/engine/targets/target_entries.h \
	test/rdma/contract_world.h \
	test/rdma/shm/shm_allocation_test.cc \
	test/rdma/shm/shm_world.h
test_allocation_tests_CPPFLAGS = $(gtest_cppflags)
test_allocation_tests_LDADD = libcore.la $(GTEST_LIBS)

# The tests with more than one thread. `make check-threads` runs only these: ThreadSanitizer finds nothing in
# the others.
threaded_tests = test/dme/model_tests test/dme_tests test/nic_tests test/shm_tests
if HAVE_SODIUM
threaded_tests += test/tcp_thread_tests
endif
if HAVE_VERBS
threaded_tests += test/verbs_thread_tests
endif

# The tests of the library's and the tools' own code. `make check-address` runs only these, for AddressSanitizer:
# the others test scripts, pages, test doubles and allocation counts, or run in the lab. This target and
# check-threads compile only what their tests need.
no_address_tests = \
	$(script_tests) \
	test/allocation_tests \
	test/fake_tests \
	test/fake_verbs_tests \
	test/tools/info_commands \
	bench/broadcast_simulation \
	test/tools/broadcast_simulation_commands \
	test/tools/module_commands \
	test/tools/trace_commands \
	test/verbs_allocation_tests \
	test/verbs_lab_tests \
	test/verbs_scale_tests

# Of these, the programs that test the same with a sanitizer and without: they use no memory hooks. If the check
# has an AddressSanitizer build, it runs them in that build only. `make distcheck` runs the test of the graft. Beside
# both, `make check-beside-others` runs what is left.
only_address_tests = \
	test/active_messages_tests \
	test/checked_tests \
	test/engine_tests \
	test/fuzz/replay \
	test/introduction_tests \
	test/modules_tests \
	test/nic_tests \
	test/placement_tests \
	test/portals_tests \
	test/shm_tests \
	test/target_tests \
	test/tcp_tests \
	test/tcp_thread_tests \
	test/tools_tests \
	test/unit_tests \
	test/verbs_tests \
	test/verbs_thread_tests \
	test/wire_up_tests

check-beside-others:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS='$(filter-out $(only_address_tests),$(check_PROGRAMS))' \
	  check_LIBRARIES= TESTS='$(filter-out $(only_address_tests) test/graft/graft_test.sh,$(TESTS))'

check-address:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS='$(filter-out $(no_address_tests),$(check_PROGRAMS))' \
	  check_LIBRARIES= TESTS='$(filter-out $(no_address_tests),$(TESTS))'

# What computes much: `quickstart check` compiles these optimized, by this target, and the other tests without
# optimization, because compiling those takes longer than running them.
optimized_tests = \
	test/dme/model_tests \
	test/libengine_world.a \
	test/simulation_tests
if HAVE_VERBS
optimized_tests += test/libfake_verbs.a
endif

check-optimized: $(optimized_tests)

check-threads:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS='$(threaded_tests)' check_LIBRARIES= \
	  TESTS='$(threaded_tests)'

# The deterministic simulation, short in `make check`. `make soak`: it, the simulation of Portals, and the models of
# target entries and of the pin-down cache, long.
check_PROGRAMS += test/simulation_tests
TESTS += test/simulation_tests
simulation_tests_sources = \
	test/engine/oracle.cc \
	test/engine/oracle.h \
	test/engine/simulation.cc \
	test/engine/event_handler.h \
	test/engine/simulation.h \
	test/engine/simulation_config.cc \
	test/engine/simulation_config.h \
	test/engine/simulation_program.cc \
	test/engine/simulation_results.cc \
	test/engine/simulation_test.cc \
	test/nic/stepped_rings.h
test_simulation_tests_CPPFLAGS = $(gtest_cppflags)
test_simulation_tests_LDADD = test/libengine_world.a libcore.la $(GTEST_LIBS)

SOAK_SEEDS = 1..100
SOAK_OPERATIONS = 100000
SOAK_STEPS = 500000
# Seeds 1 to that number.
SOAK_TARGET_SEEDS = 100
SOAK_TARGET_STEPS = 100000

# Over the installed MPICH of this prefix, if there is one; that long.
SOAK_PREFIX = $(prefix)
SOAK_SECONDS = 3600

# PROGRAM FILTER: runs these tests. GoogleTest calls it a success if there are none.
soak_targets = soak() { "$$1" --gtest_list_tests --gtest_filter="$$2" | grep -q '^  ' && \
	  CH3_OFFLOAD_TARGET_SEEDS=$(SOAK_TARGET_SEEDS) CH3_OFFLOAD_TARGET_STEPS=$(SOAK_TARGET_STEPS) \
	  "$$1" --gtest_filter="$$2"; }; soak

soak: test/simulation_tests test/dme/model_tests test/target_tests test/engine_tests
	test/simulation_tests --seeds $(SOAK_SEEDS) --operations $(SOAK_OPERATIONS) --progress
	test/dme/model_tests --seeds $(SOAK_SEEDS) --steps $(SOAK_STEPS)
	$(soak_targets) test/target_tests 'TargetModel.*'
	$(soak_targets) test/engine_tests '*/WhereverTheMemoryIs.*'
	if test -x '$(SOAK_PREFIX)/bin/mpicc'; then \
	  CH3_OFFLOAD_SOAK_SECONDS=$(SOAK_SECONDS) $(srcdir)/test/soak/run --prefix '$(SOAK_PREFIX)'; \
	else printf '%s\n' "skip  test/soak/run: no MPICH in '$(SOAK_PREFIX)'" '0 passed, 0 failed, 1 skipped'; fi

else

check-local soak:
	@echo "make check needs GoogleTest: install it (Debian: libgtest-dev) and run configure again" >&2; exit 1

endif

# Tests the installed graft. distcheck runs this on what it has installed from the tarball, and removes that
# again. KEEP_INSTALL is where a copy stays.
KEEP_INSTALL =

installcheck-local:
	top_srcdir='$(top_srcdir)' CH3_OFFLOAD_TEST_GRAFT='$(DESTDIR)$(bindir)/ch3-offload-graft' \
	  $(top_srcdir)/test/graft/graft_test.sh || test $$? = 77
	test -z '$(KEEP_INSTALL)' || cp -a '$(DESTDIR)$(prefix)' '$(KEEP_INSTALL)'

# In emulated guests with software RoCE devices, over an installed MPICH: docs/lab.md.
LAB_PREFIX = $(prefix)

check-lab:
	$(srcdir)/test/lab/run --prefix '$(LAB_PREFIX)' --build '$(abs_top_builddir)'

.PHONY: check-lab soak

AM_TESTS_ENVIRONMENT = top_srcdir='$(top_srcdir)' top_builddir='$(top_builddir)'; CH3_OFFLOAD_SETTINGS_FILE=; \
	export top_srcdir top_builddir CH3_OFFLOAD_SETTINGS_FILE;

EXTRA_DIST += \
	test/applications \
	test/bad-input \
	test/bench \
	test/check-nodes \
	test/checks.bash \
	test/clusters \
	test/debian-packages \
	test/faults \
	test/flood \
	test/imb \
	test/instructions \
	test/lab \
	test/mpich \
	test/netpipe \
	test/over-mpi \
	test/portals/am_peers.c \
	test/portals/both.c \
	test/portals/come_and_go.c \
	test/portals/poller.c \
	test/portals/rank_must.h \
	test/portals/run \
	test/portals/unread.c \
	test/portals/waits_in_mpi.c \
	test/packet-errors \
	test/sanitized-glue \
	test/shared-windows \
	test/soak \
	test/tcp \
	test/trace \
	test/waiting \
	test/worlds \
	test/wrappers
