// What a process of a large job costs over verbs: descriptors, memory, connections, packets and time. Runs the
// provider of one process with all its peers over the fake device (test/rdma/verbs/many_peers.h). There is no
// hardware: the times are those of the software, and the fake device's share is in them.
//
// usage: many_peers_bench [--no-last-receive] [PROCESSES...]    default: 100 1000 10000
//
// --no-last-receive: the device does not tell when a queue pair has used its last receive. rxe of Linux 6.1
// does not.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/verbs/many_peers.h"

namespace {

using ch3_offload::ManyPeers;

constexpr double kRestSeconds = 5;

/// Of one job.
struct Column {
  std::uint32_t processes = 0;
  double bytes_of_unknown_peer = 0;
  double bytes_of_connected_peer = 0;
  double bytes_of_peer_after = 0;
  std::int64_t heap_bytes = 0;
  std::size_t registered_bytes = 0;
  std::uint32_t queue_pairs = 0;
  ManyPeers::Phase first{}, second{}, idle{}, waiting{};
};

double each(std::int64_t bytes, std::uint32_t peers) { return static_cast<double>(bytes) / peers; }

/// Returns false, and says why, if anything went wrong.
bool run(const ManyPeers::Conditions& conditions, Column& column) {
  ch3_offload::Result<std::unique_ptr<ManyPeers>> made = ManyPeers::make(conditions);
  if (!made.ok()) {
    std::fprintf(stderr, "many_peers_bench: %s\n", made.error().message.c_str());
    return false;
  }
  ManyPeers& job = *made.value();
  const std::uint32_t peers = conditions.processes - 1;
  const std::int64_t at_first = ManyPeers::subject_heap_bytes();
  column.processes = conditions.processes;
  column.first = job.exchange();
  column.bytes_of_unknown_peer = each(job.heap_for_last_peer(), peers);
  column.bytes_of_connected_peer = each(job.heap_for_connecting(), peers);
  column.second = job.exchange();
  job.come_to_rest();
  column.heap_bytes = ManyPeers::subject_heap_bytes();
  column.bytes_of_peer_after = each(column.heap_bytes - at_first, peers);
  column.registered_bytes = job.subject().figures().registered_slot_bytes;
  column.queue_pairs = job.subject().figures().queue_pairs;
  column.idle = job.rest(kRestSeconds, /*awaits=*/false);
  column.waiting = job.rest(kRestSeconds, /*awaits=*/true);
  for (const std::string& error : job.errors()) std::fprintf(stderr, "many_peers_bench: %s\n", error.c_str());
  return job.errors().empty();
}

void print_row(const char* title, const std::vector<Column>& columns, int decimals,
               const std::function<double(const Column&)>& figure) {
  std::printf("| %s |", title);
  for (const Column& column : columns) std::printf(" %.*f |", decimals, figure(column));
  std::printf("\n");
}

/// `phase`: of the two exchanges.
void print_exchange(const std::string& name, const std::vector<Column>& columns,
                    ManyPeers::Phase Column::*phase) {
  const auto row = [&](const char* what, int decimals, const auto& figure) {
    print_row((name + ": " + what).c_str(), columns, decimals,
              [&](const Column& column) { return figure(column.*phase); });
  };
  using Phase = ManyPeers::Phase;
  row("s", 3, [](const Phase& one) { return one.wall_s; });
  row("processor time of the process, s", 3, [](const Phase& one) { return one.subject_s; });
  row("TCP connections that it made", 0, [](const Phase& one) { return static_cast<double>(one.dials); });
  row("TCP connections that it accepted", 0,
      [](const Phase& one) { return static_cast<double>(one.accepted); });
  row("descriptors for introductions, at most", 0,
      [](const Phase& one) { return static_cast<double>(one.most_descriptors); });
  row("links made", 0, [](const Phase& one) { return static_cast<double>(one.made); });
  row("links parked", 0, [](const Phase& one) { return static_cast<double>(one.parked); });
  row("links made in a second", 0,
      [](const Phase& one) { return static_cast<double>(one.made) / one.wall_s; });
  row("links made in a second of its processor time", 0,
      [](const Phase& one) { return static_cast<double>(one.made) / one.subject_s; });
  row("links that broke", 0, [](const Phase& one) { return static_cast<double>(one.lost); });
  row("messages of credit", 0, [](const Phase& one) { return static_cast<double>(one.credit_messages); });
}

void print(const std::vector<Column>& columns) {
  std::printf("| processes |");
  for (const Column& column : columns) std::printf(" %u |", column.processes);
  std::printf("\n|---|");
  for (std::size_t i = 0; i < columns.size(); ++i) std::printf("---:|");
  std::printf("\n");
  print_exchange("first all-to-all", columns, &Column::first);
  print_exchange("second all-to-all", columns, &Column::second);
  print_row("queue pairs, afterwards", columns, 0, [](const Column& one) { return one.queue_pairs; });
  print_row("registered memory, KiB", columns, 0,
            [](const Column& one) { return static_cast<double>(one.registered_bytes) / 1024; });
  print_row("heap, KiB", columns, 0,
            [](const Column& one) { return static_cast<double>(one.heap_bytes) / 1024; });
  print_row("heap for a peer never spoken to, bytes", columns, 0,
            [](const Column& one) { return one.bytes_of_unknown_peer; });
  print_row("heap for a connected peer, before anything was sent, bytes", columns, 0,
            [](const Column& one) { return one.bytes_of_connected_peer; });
  print_row("heap for a peer, afterwards, bytes", columns, 0,
            [](const Column& one) { return one.bytes_of_peer_after; });
  print_row("idle: messages and writes of all processes", columns, 0,
            [](const Column& one) { return static_cast<double>(one.idle.device_messages); });
  print_row("idle: TCP connections", columns, 0,
            [](const Column& one) { return static_cast<double>(one.idle.dials + one.idle.accepted); });
  print_row("idle: descriptors for introductions", columns, 0,
            [](const Column& one) { return static_cast<double>(one.idle.most_descriptors); });
  print_row("waiting for all: probes in a second", columns, 1,
            [](const Column& one) { return static_cast<double>(one.waiting.probes) / one.waiting.wall_s; });
  print_row("waiting for all: TCP connections in a second", columns, 1,
            [](const Column& one) { return static_cast<double>(one.waiting.dials) / one.waiting.wall_s; });
}

}  // namespace

int main(int argc, char** argv) {
  ManyPeers::Conditions conditions;
  std::vector<std::uint32_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--no-last-receive") {
      conditions.tells_last_receive = false;
      continue;
    }
    sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
    if (sizes.back() < 2) {
      std::fprintf(stderr, "usage: many_peers_bench [--no-last-receive] [PROCESSES...], at least 2 each\n");
      return 2;
    }
  }
  if (sizes.empty()) sizes = {100, 1000, 10'000};
  std::vector<Column> columns;
  for (const std::uint32_t processes : sizes) {
    conditions.processes = processes;
    columns.emplace_back();
    if (!run(conditions, columns.back())) return 1;
  }
  print(columns);
  return 0;
}
