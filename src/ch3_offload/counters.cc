// The engine's counters by index, with the names under which MPI_T shows them.

#include <cstddef>
#include <iterator>

#include "ch3_offload/process.h"

namespace {

using ch3_offload::Counters;

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
    {"received_expected", "messages that met a posted receive", 0, offsetof(Counters, received_expected)},
    {"received_unexpected", "messages that came before their receive", 0,
     offsetof(Counters, received_unexpected)},
    {"dropped_payloads", "payloads without credit that did not fit the budget and were sent again", 0,
     offsetof(Counters, dropped_payloads)},
    {"credits_requested", "times a peer ran out of byte credit", 0, offsetof(Counters, credits_requested)},
    {"credit_messages", "messages that carried nothing but byte credit", 0,
     offsetof(Counters, credit_messages)},
    {"packets_sent", "CH3 packets sent (RMA, connection management)", 0, offsetof(Counters, packets_sent)},
    {"packet_bytes_received", "bytes of CH3 packets received", 0,
     offsetof(Counters, packet_bytes_received)},
    {"cancelled_sends", "sends that were cancelled", 0, offsetof(Counters, cancelled_sends)},
    {"failed_peers", "peers whose connection failed", 0, offsetof(Counters, failed_peers)},
    {"posted_depth", "receives in the posted receive queue", 1, offsetof(Counters, posted_depth)},
    {"unexpected_depth", "messages in the unexpected queue", 1, offsetof(Counters, unexpected_depth)},
    {"unexpected_bytes", "payload kept for unexpected messages, bytes", 1,
     offsetof(Counters, unexpected_bytes)},
    {"unexpected_bytes_peak", "most payload ever kept for unexpected messages, bytes", 1,
     offsetof(Counters, unexpected_bytes_peak)},
    {"lent_bytes", "byte credit lent to peers", 1, offsetof(Counters, lent_bytes)},
    {"connected_peers", "peers that this process has connected to", 1, offsetof(Counters, connected_peers)},
};
static_assert(sizeof(Counters) == std::size(kRows) * sizeof(std::uint64_t), "every counter has a row");

}  // namespace

extern "C" {

size_t ch3_offload_counter_count(void) { return std::size(kRows); }

const char* ch3_offload_counter_name(size_t index, const char** description, int* is_level) {
  if (index >= std::size(kRows)) return nullptr;
  *description = kRows[index].description;
  *is_level = kRows[index].is_level;
  return kRows[index].name;
}

const uint64_t* ch3_offload_counter(const ch3_offload_process_t* process, size_t index) {
  if (index >= std::size(kRows)) return nullptr;
  const auto& engine = reinterpret_cast<const ch3_offload::Process*>(process)->engine();
  return reinterpret_cast<const uint64_t*>(reinterpret_cast<const char*>(&engine.counters()) +
                                           kRows[index].offset);
}

}  // extern "C"
