// The counters of the engine, the providers, the rings and the waits by index, with the names under which MPI_T
// shows them.

#include <cstddef>
#include <iterator>

#include "ch3_offload/channel.h"

namespace {

using ch3_offload::Counters;
using ch3_offload::ProviderCounters;
using ch3_offload::RingCounters;

struct Row {
  const char* name;
  const char* description;
  int is_level;
  std::size_t offset;
};

constexpr Row kRows[] = {
    {"sent_short", "messages sent in one slot", 0, offsetof(Counters, sent_short)},
    {"sent_eager", "messages sent eagerly in several slots", 0, offsetof(Counters, sent_eager)},
    {"sent_rendezvous", "messages announced and sent after their match", 0,
     offsetof(Counters, sent_rendezvous)},
    {"sent_optimistic", "small messages sent without byte credit", 0, offsetof(Counters, sent_optimistic)},
    {"sent_buffered", "sends finished early by a copy on the sending side", 0,
     offsetof(Counters, sent_buffered)},
    {"bulk_written", "rendezvous payloads moved by one write with immediate", 0,
     offsetof(Counters, bulk_written)},
    {"bulk_bounced", "rendezvous payloads moved through slots", 0, offsetof(Counters, bulk_bounced)},
    {"sent_to_self", "messages of this process to itself", 0, offsetof(Counters, sent_to_self)},
    {"received_expected", "messages that met a posted receive", 0, offsetof(Counters, received_expected)},
    {"received_unexpected", "messages that came before their receive", 0,
     offsetof(Counters, received_unexpected)},
    {"dropped_payloads", "payloads without credit that did not fit the budget and were sent again", 0,
     offsetof(Counters, dropped_payloads)},
    {"credits_requested", "times a peer ran out of byte credit", 0, offsetof(Counters, credits_requested)},
    {"credit_messages", "messages that carried nothing but byte credit", 0,
     offsetof(Counters, credit_messages)},
    {"packets_sent", "CH3 packets sent (RMA, connection management)", 0, offsetof(Counters, packets_sent)},
    {"packet_bytes_received", "bytes of CH3 packets received", 0, offsetof(Counters, packet_bytes_received)},
    {"packet_bytes_placed", "of those, bytes that went by rendezvous to where they belong", 0,
     offsetof(Counters, packet_bytes_placed)},
    {"cancelled_sends", "sends that were cancelled", 0, offsetof(Counters, cancelled_sends)},
    {"failed_peers", "peers whose connection failed", 0, offsetof(Counters, failed_peers)},
    {"posted_depth", "receives in the posted receive queue", 1, offsetof(Counters, posted_depth)},
    {"unexpected_depth", "messages in the unexpected queue", 1, offsetof(Counters, unexpected_depth)},
    {"unexpected_announced", "unexpected messages whose payload the sender keeps", 1,
     offsetof(Counters, unexpected_announced)},
    {"pending_sends", "sends and packets that are not finished", 1, offsetof(Counters, pending_sends)},
    {"unexpected_bytes", "budget that unexpected messages take, bytes", 1,
     offsetof(Counters, unexpected_bytes)},
    {"unexpected_bytes_peak", "most budget that unexpected messages ever took, bytes", 1,
     offsetof(Counters, unexpected_bytes_peak)},
    {"lent_bytes", "byte credit lent to peers", 1, offsetof(Counters, lent_bytes)},
    {"connected_peers", "peers that this process has connected to", 1, offsetof(Counters, connected_peers)},
    {"cards_wanted", "peers whose address was asked for", 0, offsetof(Counters, cards_wanted)},
    {"pin_hits", "transfers whose memory was registered already", 0, offsetof(Counters, pin_hits)},
    {"pin_misses", "registrations of a program's memory", 0, offsetof(Counters, pin_misses)},
    {"pin_evictions", "registrations given up to make room for others", 0, offsetof(Counters, pin_evictions)},
    {"pin_invalidations", "registrations whose memory the program gave back", 0,
     offsetof(Counters, pin_invalidations)},
    {"pin_refused", "transfers whose memory could not be registered", 0, offsetof(Counters, pin_refused)},
    {"pinned_bytes", "registered memory of the program, bytes", 1, offsetof(Counters, pinned_bytes)},
    {"pinned_regions", "registered pieces of the program's memory", 1, offsetof(Counters, pinned_regions)},
};
static_assert(sizeof(Counters) == std::size(kRows) * sizeof(std::uint64_t), "every counter has a row");

constexpr Row kProviderRows[] = {
    {"network_registered_bytes", "registered memory of the network's slots, bytes", 1,
     offsetof(ProviderCounters, network_registered_bytes)},
    {"network_connections", "queue pairs that this process has", 1,
     offsetof(ProviderCounters, network_connections)},
    {"network_connections_made", "queue pairs that were ever made", 0,
     offsetof(ProviderCounters, network_connections_made)},
    {"network_connections_lost", "queue pairs that broke and were replaced, or their peer given up", 0,
     offsetof(ProviderCounters, network_connections_lost)},
    {"network_connections_parked", "queue pairs closed to make room for others", 0,
     offsetof(ProviderCounters, network_connections_parked)},
    {"network_sent_again", "messages and writes that a broken connection had lost, or that were damaged", 0,
     offsetof(ProviderCounters, network_sent_again)},
    {"network_credit_messages", "slots that held nothing but credit for slots", 0,
     offsetof(ProviderCounters, network_credit_messages)},
    {"damaged", "messages and writes that arrived with a wrong checksum, and were asked for again", 0,
     offsetof(ProviderCounters, damaged)},
};
static_assert(sizeof(ProviderCounters) == std::size(kProviderRows) * sizeof(std::uint64_t),
              "every counter has a row");

constexpr Row kRingRows[] = {
    {"ring_commands", "commands that this process gave to its network processor", 0,
     offsetof(RingCounters, client.commands)},
    {"ring_events", "events that the network processor gave to this process", 0,
     offsetof(RingCounters, processor.events)},
    {"ring_nic_sleeps", "times that the network processor announced a sleep", 0,
     offsetof(RingCounters, processor.sleeps)},
    {"ring_nic_bells", "times that this process woke its network processor, each a system call", 0,
     offsetof(RingCounters, client.bells_rung)},
    {"ring_client_sleeps", "times that this process announced a sleep", 0,
     offsetof(RingCounters, client.sleeps)},
    {"ring_client_bells", "times that the network processor woke this process, each a system call", 0,
     offsetof(RingCounters, processor.bells_rung)},
    {"ring_staged", "payloads that this process copied because its network processor cannot reach them", 0,
     offsetof(RingCounters, client.staged)},
    {"ring_copied", "messages that this process copied from their sender's memory itself, by one copy", 0,
     offsetof(RingCounters, client.copied)},
    {"ring_schedules", "collective operations that this process left to its network processor", 0,
     offsetof(RingCounters, client.schedules)},
};

constexpr Row kWaitRows[] = {
    {"partings", "times that this process left a processor on which another process of the node waited, too",
     0, 0},
};

constexpr std::size_t kFirstProviderRow = std::size(kRows);
constexpr std::size_t kFirstRingRow = kFirstProviderRow + std::size(kProviderRows);
constexpr std::size_t kFirstWaitRow = kFirstRingRow + std::size(kRingRows);
constexpr std::size_t kCount = kFirstWaitRow + std::size(kWaitRows);

constexpr const Row& row(std::size_t index) noexcept {
  if (index < kFirstProviderRow) return kRows[index];
  if (index < kFirstRingRow) return kProviderRows[index - kFirstProviderRow];
  return index < kFirstWaitRow ? kRingRows[index - kFirstRingRow] : kWaitRows[index - kFirstWaitRow];
}

}  // namespace

extern "C" {

size_t ch3_offload_counter_count(void) { return kCount; }

const char* ch3_offload_counter_name(size_t index, const char** description, int* is_level) {
  if (index >= kCount) return nullptr;
  *description = row(index).description;
  *is_level = row(index).is_level;
  return row(index).name;
}

const uint64_t* ch3_offload_counter(const ch3_offload_channel_t* handle, size_t index) {
  if (index >= kCount) return nullptr;
  const auto& channel = *reinterpret_cast<const ch3_offload::Channel*>(handle);
  if (index >= kFirstWaitRow) return &channel.parting().partings();
  const ch3_offload::CounterPage& page = channel.port().counters();
  const auto& its = index < kFirstProviderRow
                        ? reinterpret_cast<const char&>(static_cast<const Counters&>(page))
                    : index < kFirstRingRow ? reinterpret_cast<const char&>(page.providers)
                                            : reinterpret_cast<const char&>(channel.port().ring_counters());
  return reinterpret_cast<const uint64_t*>(&its + row(index).offset);
}

}  // extern "C"
