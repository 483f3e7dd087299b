# libch3offload. Add a source to the list of its layer (ARCHITECTURE.md: dependencies point down only).

rdma_sources = \
	src/rdma/address_text.h \
	src/rdma/ch3_offload_copy.h \
	src/rdma/ch3_offload_lane.h \
	src/rdma/checked/checked_frames.cc \
	src/rdma/checked/checked_frames.h \
	src/rdma/checked/checked_provider.cc \
	src/rdma/checked/checked_provider.h \
	src/rdma/checked/checked_writes.cc \
	src/rdma/checked/checksum.h \
	src/rdma/checked/sent_frames.cc \
	src/rdma/checked/sent_frames.h \
	src/rdma/cycle_clock.h \
	src/rdma/descriptor_limit.h \
	src/rdma/file_descriptor.h \
	src/rdma/fork_closing.cc \
	src/rdma/fork_closing.h \
	src/rdma/hex.h \
	src/rdma/introduction/dialling.cc \
	src/rdma/introduction/first_of_two.h \
	src/rdma/introduction/frame_stream.cc \
	src/rdma/introduction/frame_stream.h \
	src/rdma/introduction/frames.cc \
	src/rdma/introduction/frames.h \
	src/rdma/introduction/host_address.cc \
	src/rdma/introduction/host_address.h \
	src/rdma/introduction/introducer.h \
	src/rdma/introduction/keyed_hash.h \
	src/rdma/introduction/listening.cc \
	src/rdma/introduction/listening.h \
	src/rdma/introduction/socket_address.cc \
	src/rdma/introduction/socket_address.h \
	src/rdma/introduction/socket_introducer.cc \
	src/rdma/introduction/socket_introducer.h \
	src/rdma/introduction/transcript.cc \
	src/rdma/introduction/transcript.h \
	src/rdma/job_secret.h \
	src/rdma/log.h \
	src/rdma/log_scope.h \
	src/rdma/memcheck.h \
	src/rdma/monotonic_clock.h \
	src/rdma/rdma_devices.h \
	src/rdma/peer_table.h \
	src/rdma/processor_set.cc \
	src/rdma/processor_set.h \
	src/rdma/provider.h \
	src/rdma/registrar.h \
	src/rdma/shm/bulk_copy.cc \
	src/rdma/shm/bulk_copy.h \
	src/rdma/shm/shared_write.h \
	src/rdma/shm/travelling_chunks.h \
	src/rdma/shm/travelling_records.h \
	src/rdma/shm/activity.h \
	src/rdma/shm/doorbell.h \
	src/rdma/shm/ring.h \
	src/rdma/shm/ring_memory.h \
	src/rdma/shm/shared_memory.cc \
	src/rdma/shm/shared_memory.h \
	src/rdma/shm/shm_connection.cc \
	src/rdma/shm/shm_connection.h \
	src/rdma/shm/shm_datapath.cc \
	src/rdma/shm/shm_write.cc \
	src/rdma/shm/shm_endpoint.h \
	src/rdma/shm/shm_housekeeping.cc \
	src/rdma/shm/shm_provider.cc \
	src/rdma/shm/shm_provider.h \
	src/rdma/shm/unix_socket.cc \
	src/rdma/shm/unix_socket.h \
	src/rdma/status.cc \
	src/rdma/status.h \
	src/rdma/tcp/tcp_address.cc \
	src/rdma/tcp/tcp_address.h \
	src/rdma/tcp/tcp_config.h \
	src/rdma/waiting_place.h \
	src/rdma/write_choice.cc \
	src/rdma/write_choice.h \
	src/rdma/system_error.cc \
	src/rdma/system_error.h \
	src/rdma/verbs/port_wish.cc \
	src/rdma/verbs/port_wish.h \
	src/rdma/verbs/verbs_address.cc \
	src/rdma/verbs/verbs_address.h \
	src/rdma/verbs/verbs_config.h

if HAVE_SODIUM
rdma_sources += \
	src/rdma/introduction/keyed_hash.cc \
	src/rdma/tcp/tcp_landings.h \
	src/rdma/tcp/tcp_outbox.h \
	src/rdma/tcp/tcp_silence.h \
	src/rdma/tcp/tcp_endpoint.h \
	src/rdma/tcp/tcp_frames.h \
	src/rdma/tcp/tcp_meetings.cc \
	src/rdma/tcp/tcp_polling.cc \
	src/rdma/tcp/tcp_provider.cc \
	src/rdma/tcp/tcp_provider.h \
	src/rdma/tcp/tcp_receiving.cc \
	src/rdma/tcp/tcp_sending.cc
else
rdma_sources += \
	src/rdma/introduction/keyed_hash_absent.cc \
	src/rdma/tcp/tcp_absent.cc
endif

if HAVE_ISAL
rdma_sources += src/rdma/checked/checksum.cc
else
rdma_sources += src/rdma/checked/checksum_absent.cc
endif

if HAVE_VERBS
rdma_sources += \
	src/rdma/verbs/devices/port_choice.cc \
	src/rdma/verbs/devices/port_choice.h \
	src/rdma/verbs/devices/port_selection.cc \
	src/rdma/verbs/devices/port_selection.h \
	src/rdma/verbs/devices/rail.cc \
	src/rdma/verbs/devices/rail.h \
	src/rdma/verbs/devices/registrations.cc \
	src/rdma/verbs/devices/registrations.h \
	src/rdma/verbs/devices/slot_pool.cc \
	src/rdma/verbs/devices/slot_pool.h \
	src/rdma/verbs/devices/verbs_handles.h \
	src/rdma/verbs/links/introductions.cc \
	src/rdma/verbs/links/link_timer.h \
	src/rdma/verbs/links/links.cc \
	src/rdma/verbs/links/links.h \
	src/rdma/verbs/links/parking.cc \
	src/rdma/verbs/links/parking.h \
	src/rdma/verbs/marked_list.h \
	src/rdma/verbs/transport/completions.cc \
	src/rdma/verbs/transport/link.h \
	src/rdma/verbs/transport/message_buffers.cc \
	src/rdma/verbs/transport/message_buffers.h \
	src/rdma/verbs/transport/transport.cc \
	src/rdma/verbs/transport/transport.h \
	src/rdma/verbs/verbs_endpoint.h \
	src/rdma/verbs/verbs_failures.cc \
	src/rdma/verbs/verbs_housekeeping.cc \
	src/rdma/verbs/verbs_provider.cc \
	src/rdma/verbs/verbs_provider.h \
	src/rdma/verbs/wire_up/link_frames.cc \
	src/rdma/verbs/wire_up/link_frames.h
else
rdma_sources += src/rdma/verbs/verbs_absent.cc
endif

dme_sources = \
	src/dme/cgroup_limit.cc \
	src/dme/cgroup_limit.h \
	src/dme/fork_mark.cc \
	src/dme/fork_mark.h \
	src/dme/memory_events.h \
	src/dme/page_table.cc \
	src/dme/page_table.h \
	src/dme/pin_budget.cc \
	src/dme/pin_budget.h \
	src/dme/pin_down_cache.cc \
	src/dme/pin_down_cache.h \
	src/dme/region.h

if HAVE_UCM
dme_sources += src/dme/memory_events.cc src/dme/tcmalloc_calls.cc src/dme/tcmalloc_calls.h
else
dme_sources += src/dme/memory_events_absent.cc
endif

engine_sources = \
	src/engine/card.cc \
	src/engine/card.h \
	src/engine/ch3_offload_events.h \
	src/engine/engine.cc \
	src/engine/engine.h \
	src/engine/engine_cancel.cc \
	src/engine/engine_classes.cc \
	src/engine/engine_events.cc \
	src/engine/engine_flow.cc \
	src/engine/engine_memory.cc \
	src/engine/engine_packets.cc \
	src/engine/engine_peers.cc \
	src/engine/engine_programs.cc \
	src/engine/engine_receive.cc \
	src/engine/engine_rendezvous.cc \
	src/engine/engine_self.cc \
	src/engine/engine_send.cc \
	src/engine/engine_state.h \
	src/engine/engine_target_arrivals.cc \
	src/engine/engine_target_close.cc \
	src/engine/engine_target_locks.cc \
	src/engine/engine_target_own.cc \
	src/engine/engine_target_requests.cc \
	src/engine/engine_target_triggers.cc \
	src/engine/entry_memory.cc \
	src/engine/entry_memory.h \
	src/engine/free_list.h \
	src/engine/intrusive_list.h \
	src/engine/keyed_queues.h \
	src/engine/match_key.h \
	src/engine/matcher.cc \
	src/engine/matcher.h \
	src/engine/operations.h \
	src/engine/payload_blocks.h \
	src/engine/payload_layout.cc \
	src/engine/payload_layout.h \
	src/engine/peer.h \
	src/engine/pool.h \
	src/engine/state_machine.h \
	src/engine/states.h \
	src/engine/target_operations.h \
	src/engine/target_request.h \
	src/engine/targets/target_atomics.cc \
	src/engine/targets/target_atomics.h \
	src/engine/targets/target_board.h \
	src/engine/targets/target_counters.cc \
	src/engine/targets/target_counters.h \
	src/engine/targets/target_entry.h \
	src/engine/targets/target_event_ring.h \
	src/engine/targets/told_memory.h \
	src/engine/targets/target_events.h \
	src/engine/targets/target_interface.cc \
	src/engine/targets/target_interface.h \
	src/engine/targets/target_key.h \
	src/engine/targets/target_list.cc \
	src/engine/targets/target_list.h \
	src/engine/targets/target_lock.cc \
	src/engine/targets/target_lock.h \
	src/engine/targets/target_resources.h \
	src/engine/targets/target_runs.h \
	src/engine/targets/target_table.cc \
	src/engine/targets/target_table.h \
	src/engine/targets/target_triggers.cc \
	src/engine/targets/target_triggers.h \
	src/engine/targets/unexpected_headers.cc \
	src/engine/targets/unexpected_headers.h \
	src/engine/trace.cc \
	src/engine/trace.h \
	src/engine/wire.h

modules_sources = \
	src/modules/module.h \
	src/modules/module_message.h \
	src/modules/module_runner.cc \
	src/modules/module_runner.h \
	src/modules/module_troubles.cc \
	src/modules/simulated_group.cc \
	src/modules/simulated_group.h \
	src/modules/tree.cc \
	src/modules/tree.h

if HAVE_LUA
modules_sources += \
	src/modules/lua_library.cc \
	src/modules/lua_library.h \
	src/modules/module.cc \
	src/modules/module_clock.cc \
	src/modules/module_state.h \
	src/modules/module_tree.cc \
	src/modules/module_values.cc
else
modules_sources += src/modules/module_absent.cc
endif

nic_sources = \
	src/nic/client_memory.cc \
	src/nic/client_memory.h \
	src/nic/client_outlet.h \
	src/nic/client_shares.cc \
	src/nic/client_shares.h \
	src/nic/cores.cc \
	src/nic/cores.h \
	src/nic/exchange.cc \
	src/nic/exchange.h \
	src/nic/exchange_port.cc \
	src/nic/exchange_writes.cc \
	src/nic/fencing.cc \
	src/nic/fencing.h \
	src/nic/host_driver.cc \
	src/nic/host_driver.h \
	src/nic/host_targets.cc \
	src/nic/host_targets.h \
	src/nic/nic_records.h \
	src/nic/nic_thread.cc \
	src/nic/nic_thread.h \
	src/nic/nicd_protocol.cc \
	src/nic/nicd_protocol.h \
	src/nic/introductions.cc \
	src/nic/introductions.h \
	src/nic/kernel_reach.cc \
	src/nic/kernel_reach.h \
	src/nic/memory_place.h \
	src/nic/neighbour_memory.cc \
	src/nic/neighbour_memory.h \
	src/nic/node_processes.cc \
	src/nic/node_processes.h \
	src/nic/offered_copies.cc \
	src/nic/offered_copies.h \
	src/nic/parting.cc \
	src/nic/parting.h \
	src/nic/physical_id.cc \
	src/nic/physical_id.h \
	src/nic/placement.cc \
	src/nic/placement.h \
	src/nic/port.h \
	src/nic/port_memory.cc \
	src/nic/port_memory.h \
	src/nic/process_book.h \
	src/nic/rank_book.h \
	src/nic/process_driver.cc \
	src/nic/process_driver.h \
	src/nic/process_frames.cc \
	src/nic/process_frames.h \
	src/nic/process_targets.h \
	src/nic/processor_wait.h \
	src/nic/ring_port.cc \
	src/nic/ring_port.h \
	src/nic/ring_port_events.cc \
	src/nic/ring_port_memory.cc \
	src/nic/ring_port_schedules.cc \
	src/nic/ring_server.cc \
	src/nic/ring_server.h \
	src/nic/ring_server_events.cc \
	src/nic/ring_server_names.h \
	src/nic/ring_targets.cc \
	src/nic/ring_targets.h \
	src/nic/runner_relay.cc \
	src/nic/runner_relay.h \
	src/nic/schedule.h \
	src/nic/schedule_runner.cc \
	src/nic/schedule_runner.h \
	src/nic/staged_schedule.cc \
	src/nic/staged_schedule.h \
	src/nic/shared_arena.cc \
	src/nic/shared_arena.h \
	src/nic/silenced_provider.h \
	src/nic/target_addresses.cc \
	src/nic/target_addresses.h \
	src/nic/target_command.h \
	src/nic/target_execution.cc \
	src/nic/target_port.cc \
	src/nic/target_port.h \
	src/nic/target_server.cc \
	src/nic/target_server.h \
	src/nic/thread_driver.cc \
	src/nic/thread_driver.h \
	src/nic/topology.h \
	src/nic/traced_port.cc \
	src/nic/traced_port.h \
	src/nic/user_key.cc \
	src/nic/user_key.h \
	src/nic/wait_policy.cc \
	src/nic/wait_policy.h \
	src/nic/waiter.h

if HAVE_HWLOC
nic_sources += src/nic/topology.cc
else
nic_sources += src/nic/topology_absent.cc
endif

channel_sources = \
	src/ch3_offload/c_interface.cc \
	src/ch3_offload/call_driven.cc \
	src/ch3_offload/call_driven.h \
	src/ch3_offload/ch3_offload.h \
	src/ch3_offload/config.cc \
	src/ch3_offload/counters.cc \
	src/ch3_offload/channel.cc \
	src/ch3_offload/channel.h \
	src/ch3_offload/environment.cc \
	src/ch3_offload/environment.h \
	src/ch3_offload/job_report.cc \
	src/ch3_offload/job_report.h \
	src/ch3_offload/launcher.cc \
	src/ch3_offload/launcher.h \
	src/ch3_offload/foreign_processes.cc \
	src/ch3_offload/foreign_processes.h \
	src/ch3_offload/lone_process.cc \
	src/ch3_offload/lone_process.h \
	src/ch3_offload/making.cc \
	src/ch3_offload/making.h \
	src/ch3_offload/nic_choice.cc \
	src/ch3_offload/nic_choice.h \
	src/ch3_offload/nicd.cc \
	src/ch3_offload/nicd.h \
	src/ch3_offload/nicd_client.cc \
	src/ch3_offload/nicd_client.h \
	src/ch3_offload/nicd_group.cc \
	src/ch3_offload/nicd_group.h \
	src/ch3_offload/nicd_hello.cc \
	src/ch3_offload/nicd_hello.h \
	src/ch3_offload/nicd_job.cc \
	src/ch3_offload/nicd_job.h \
	src/ch3_offload/nicd_lone_process.cc \
	src/ch3_offload/nicd_lone_process.h \
	src/ch3_offload/nicd_newcomers.cc \
	src/ch3_offload/nicd_newcomers.h \
	src/ch3_offload/own_providers.cc \
	src/ch3_offload/own_providers.h \
	src/ch3_offload/partitions.cc \
	src/ch3_offload/partitions.h \
	src/ch3_offload/process_thread.cc \
	src/ch3_offload/process_thread.h \
	src/ch3_offload/node_settings.cc \
	src/ch3_offload/node_settings.h \
	src/ch3_offload/setting_names.cc \
	src/ch3_offload/setting_names.h \
	src/ch3_offload/settings.cc \
	src/ch3_offload/settings.h \
	src/ch3_offload/settings_files.cc \
	src/ch3_offload/settings_files.h \
	src/ch3_offload/windows.cc \
	src/ch3_offload/windows.h \
	src/ch3_offload/windows_interface.cc

portals_sources = \
	src/portals/call.h \
	src/portals/counter_calls.cc \
	src/portals/counting_events.h \
	src/portals/descriptor_calls.cc \
	src/portals/entry_calls.cc \
	src/portals/entry_layouts.h \
	src/portals/event_queue.h \
	src/portals/handle.h \
	src/portals/handle_table.h \
	src/portals/interface.cc \
	src/portals/interface.h \
	src/portals/interface_calls.cc \
	src/portals/iovec.h \
	src/portals/library.cc \
	src/portals/library.h \
	src/portals/limits.cc \
	src/portals/limits.h \
	src/portals/memory_descriptor.cc \
	src/portals/memory_descriptor.h \
	src/portals/movement_calls.cc \
	src/portals/portals_process.h \
	src/portals/queue_calls.cc \
	src/portals/table_calls.cc \
	src/portals/translation.cc \
	src/portals/translation.h

active_messages_sources = \
	src/active_messages/arguments.cc \
	src/active_messages/calls.cc \
	src/active_messages/endpoint.cc \
	src/active_messages/endpoint.h \
	src/active_messages/inbox.cc \
	src/active_messages/inbox.h \
	src/active_messages/little_endian.h \
	src/active_messages/message.cc \
	src/active_messages/message.h \
	src/active_messages/regions.cc \
	src/active_messages/regions.h \
	src/active_messages/send_stream.cc \
	src/active_messages/send_stream.h

# make_portals_process(): what a process has below its interfaces.
portals_process_sources = \
	src/portals/fabric_process.cc \
	src/portals/fabric_process.h

# Every object of the core, with its C++ symbols: what the tests link.
noinst_LTLIBRARIES += libcore.la
core_sources = $(rdma_sources) $(dme_sources) $(engine_sources) $(modules_sources) $(nic_sources) $(channel_sources)
libcore_la_CPPFLAGS = $(AM_CPPFLAGS) -DCH3_OFFLOAD_BINDIR='"$(bindir)"' \
	-DCH3_OFFLOAD_SYSCONFDIR='"$(sysconfdir)"' $(SODIUM_CFLAGS) $(ISAL_CFLAGS) $(VERBS_CFLAGS) $(HWLOC_CFLAGS) $(LUA_CFLAGS)
libcore_la_LIBADD = $(VERBS_LIBS) $(SODIUM_LIBS) $(ISAL_LIBS) $(HWLOC_LIBS)

dist_man_MANS += docs/man/ch3_offload_am.7 docs/man/portals4.7
include_HEADERS = \
	src/active_messages/ch3_offload_am.h \
	src/ch3_offload/ch3_offload.h \
	src/ch3_offload/ch3_offload_settings.def \
	src/ch3_offload/ch3_offload_windows.h \
	src/engine/ch3_offload_events.h \
	src/modules/ch3_offload_modules.h \
	src/portals/portals4.h \
	src/rdma/ch3_offload_copy.h \
	src/rdma/ch3_offload_lane.h

# Every object of the Portals library, with its C++ symbols: what its tests link.
noinst_LTLIBRARIES += libportals_calls.la

# What MPICH links, and what programs for Portals link: one library, so that both find the same core in a process. C
# programs must not need a C++ runtime: only the functions of the interfaces are exported, and libstdc++ and libgcc are
# linked in statically. libtool's C++ mode always appends the shared ones, so the library is linked in its C mode, where
# nothing is appended; test/exported_symbols checks the result.
# -version-info: current:revision:age as libtool's manual has it; raise on each change of an installed header.
lib_LTLIBRARIES += libch3offload.la
libch3offload_la_SOURCES = $(portals_process_sources)
libch3offload_la_LIBADD = libportals_calls.la libcore.la -lm
libch3offload_la_DEPENDENCIES = libportals_calls.la libcore.la $(top_srcdir)/src/libch3offload.map
libch3offload_la_LINK = $(LIBTOOL) $(AM_V_lt) --tag=CC $(AM_LIBTOOLFLAGS) $(LIBTOOLFLAGS) --mode=link $(CC) $(CFLAGS) \
	$(AM_LDFLAGS) $(libch3offload_la_LDFLAGS) $(LDFLAGS) -o $@
libch3offload_la_LDFLAGS = -version-info 29:0:0 $(cxx_runtime_flags) -Wl,-z,relro -Wl,-z,now \
	-Wl,--version-script=$(top_srcdir)/src/libch3offload.map

# Build systems of programs for Portals look for the library under this name. libtool reads from the .la where
# the library is, and programs then look there when they run.
install-exec-hook:
	cd $(DESTDIR)$(libdir) && for kind in so a la; do \
	  if test -e libch3offload.$$kind; then ln -sf libch3offload.$$kind libportals.$$kind; fi; \
	done
uninstall-hook:
	for kind in so a la; do rm -f $(DESTDIR)$(libdir)/libportals.$$kind; done

if SANITIZED
# The sanitizers' runtimes belong to the C++ compiler and to the program: only the tests' libraries matter here.
cxx_runtime_flags = -Wl,-lstdc++
else
cxx_runtime_flags = -Wl,--push-state,-Bstatic,-lstdc++,--pop-state -Wc,-static-libgcc -Wl,-z,defs
endif

EXTRA_DIST += \
	src/ch3_offload/mpich \
	src/libch3offload.map
