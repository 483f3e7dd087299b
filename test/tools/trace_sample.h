// Trace files made by hand, for the tests of tools/.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/trace.h"
#include "trace_file.h"

namespace ch3_offload {

/// A file of one rank. Every node's monotonic clock began `boot_ns` before 1970 + kEpochNs.
class TraceSample {
 public:
  static constexpr std::uint64_t kEpochNs = 1'700'000'000'000'000'000;

  TraceSample(std::uint32_t self, std::uint32_t job_size, std::uint64_t node = 1, std::uint64_t boot_ns = 0) {
    TraceFileHeader& header = file_.header;
    std::memcpy(header.magic, kTraceMagic, sizeof header.magic);
    header.version = kTraceVersion;
    header.record_bytes = sizeof(TraceRecord);
    header.self = self;
    header.job_size = job_size;
    header.node_id = node;
    header.at_start = {boot_ns, kEpochNs};
    header.at_write = {boot_ns + 1'000'000'000, kEpochNs + 1'000'000'000};
    header.process_id = 1000 + self;
    const std::string host = "node" + std::to_string(node);
    std::memcpy(header.host, host.data(), host.size());
    file_.path = "sample." + std::to_string(self) + ".ch3trace";
    boot_ns_ = boot_ns;
  }

  /// Makes it the client's side.
  TraceSample& by_client() {
    file_.header.side = static_cast<std::uint16_t>(TraceSide::kClient);
    file_.path = "sample." + std::to_string(file_.header.self) + ".client.ch3trace";
    return *this;
  }

  /// `time_ns`: since kEpochNs.
  TraceSample& add(std::uint64_t time_ns, TraceEvent event, std::uint32_t peer, std::uint64_t number = 0,
                   std::uint64_t detail = 0, std::uint64_t cookie = 0, std::uint8_t outcome = 0) {
    file_.records.push_back(
        {boot_ns_ + time_ns, number, detail, cookie, peer, static_cast<std::uint8_t>(event), outcome, {}});
    file_.header.count = file_.records.size();
    return *this;
  }

  TraceSample& lose(std::uint64_t events) {
    file_.header.first_index = events;
    return *this;
  }

  TraceFileHeader& header() { return file_.header; }
  const TraceFile& file() const { return file_; }

  /// The file as it would be on disk.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> bytes(sizeof file_.header + file_.records.size() * sizeof(TraceRecord));
    std::memcpy(bytes.data(), &file_.header, sizeof file_.header);
    for (std::size_t i = 0; i < file_.records.size(); ++i)
      std::memcpy(bytes.data() + sizeof file_.header + i * sizeof(TraceRecord), &file_.records[i],
                  sizeof(TraceRecord));
    return bytes;
  }

 private:
  TraceFile file_;
  std::uint64_t boot_ns_;
};

}  // namespace ch3_offload
