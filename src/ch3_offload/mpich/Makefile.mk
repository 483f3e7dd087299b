## The ch3:offload channel: glue between CH3 and libch3offload.
## Copied here by ch3-offload-graft; edit it in the ch3-offload source tree.
## This is the one list of the glue's files: ch3-offload-graft copies, and `make install` installs, what is named here.

# Unconditional: the list of error names does not depend on configure.
errnames_txt_files += src/mpid/ch3/channels/offload/errnames.txt

if BUILD_CH3_OFFLOAD

AM_CPPFLAGS +=                                             \
    -I$(top_srcdir)/src/mpid/ch3/channels/offload/include  \
    -I$(top_builddir)/src/mpid/ch3/channels/offload/include \
    -I$(top_srcdir)/src/mpi/coll/ibcast

noinst_HEADERS +=                                          \
    src/mpid/ch3/channels/offload/include/ch3_agreement.h \
    src/mpid/ch3/channels/offload/include/ch3_foreign.h \
    src/mpid/ch3/channels/offload/include/ch3_mpich.h \
    src/mpid/ch3/channels/offload/include/ch3_packet_headers.h \
    src/mpid/ch3/channels/offload/include/ch3_partitions.h \
    src/mpid/ch3/channels/offload/include/ch3_window_ops.h \
    src/mpid/ch3/channels/offload/include/ch3_worlds.h \
    src/mpid/ch3/channels/offload/include/mpidi_ch3_pre.h  \
    src/mpid/ch3/channels/offload/include/mpidi_ch3_impl.h \
    src/mpid/ch3/channels/offload/include/mpidi_ch3_post.h

mpi_core_sources +=                                        \
    src/mpid/ch3/channels/offload/src/ch3_agreement.c      \
    src/mpid/ch3/channels/offload/src/ch3_barrier.c        \
    src/mpid/ch3/channels/offload/src/ch3_classes.c        \
    src/mpid/ch3/channels/offload/src/ch3_collectives.c    \
    src/mpid/ch3/channels/offload/src/ch3_comm.c           \
    src/mpid/ch3/channels/offload/src/ch3_cvars.c          \
    src/mpid/ch3/channels/offload/src/ch3_failure.c        \
    src/mpid/ch3/channels/offload/src/ch3_foreign.c        \
    src/mpid/ch3/channels/offload/src/ch3_init.c           \
    src/mpid/ch3/channels/offload/src/ch3_layout.c         \
    src/mpid/ch3/channels/offload/src/ch3_memory.c         \
    src/mpid/ch3/channels/offload/src/ch3_mapped_windows.c \
    src/mpid/ch3/channels/offload/src/ch3_modules.c        \
    src/mpid/ch3/channels/offload/src/ch3_mremap.c         \
    src/mpid/ch3/channels/offload/src/ch3_packets_recv.c   \
    src/mpid/ch3/channels/offload/src/ch3_packets_send.c   \
    src/mpid/ch3/channels/offload/src/ch3_partition_messages.c \
    src/mpid/ch3/channels/offload/src/ch3_partitioned.c    \
    src/mpid/ch3/channels/offload/src/ch3_process_manager.c \
    src/mpid/ch3/channels/offload/src/ch3_progress.c       \
    src/mpid/ch3/channels/offload/src/ch3_pvars.c          \
    src/mpid/ch3/channels/offload/src/ch3_recvq.c          \
    src/mpid/ch3/channels/offload/src/ch3_recvq_purge.c    \
    src/mpid/ch3/channels/offload/src/ch3_revocation.c     \
    src/mpid/ch3/channels/offload/src/ch3_rma_failure.c    \
    src/mpid/ch3/channels/offload/src/ch3_rma_locks.c      \
    src/mpid/ch3/channels/offload/src/ch3_roots.c          \
    src/mpid/ch3/channels/offload/src/ch3_schedules.c      \
    src/mpid/ch3/channels/offload/src/ch3_send.c           \
    src/mpid/ch3/channels/offload/src/ch3_shared_segment.c \
    src/mpid/ch3/channels/offload/src/ch3_shared_windows.c \
    src/mpid/ch3/channels/offload/src/ch3_shrink.c         \
    src/mpid/ch3/channels/offload/src/ch3_win_fns.c        \
    src/mpid/ch3/channels/offload/src/ch3_window_locks.c   \
    src/mpid/ch3/channels/offload/src/ch3_window_ops.c     \
    src/mpid/ch3/channels/offload/src/ch3_window_stock.c   \
    src/mpid/ch3/channels/offload/src/ch3_window_types.c   \
    src/mpid/ch3/channels/offload/src/ch3_windows.c        \
    src/mpid/ch3/channels/offload/src/ch3_worlds.c

endif BUILD_CH3_OFFLOAD
