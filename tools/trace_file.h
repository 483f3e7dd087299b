// Trace files: finding, reading and checking them.
//
// A file comes from another process, maybe from another machine, maybe cut or overwritten: nothing in it
// is believed before parse_trace() has checked it. What parse_trace() accepts, the rest of the
// tool may use without looking: see TraceFile. docs/trace.md is the reference of the format.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/trace.h"
#include "rdma/status.h"

namespace ch3_offload {

/// One checked file. Holds: self and every peer are below job_size; every event is one of the file's side; the
/// records' times never decrease and lie between at_start and at_write, which are at most kLongestTraceNs
/// apart; times and indices are below kTraceLimit; a command of the client has an outcome, and returned
/// before at_write; host is printable and ends in NUL.
struct TraceFile {
  std::string path;
  TraceFileHeader header{};
  std::vector<TraceRecord> records;  ///< Oldest first.

  bool is_of_client() const noexcept { return header.side == static_cast<std::uint16_t>(TraceSide::kClient); }
};

/// Whether a client gave a command.
constexpr bool is_command(TraceEvent event) noexcept {
  return event >= TraceEvent::kSendGiven && event <= TraceEvent::kCancelGiven;
}

/// So that no sum or difference of times in this tool overflows, whatever the files say. 146 years and 2.
inline constexpr std::uint64_t kTraceLimit = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kLongestTraceNs = std::uint64_t{1} << 56;

/// Reads the contents of a trace file; `path` is for messages. On failure the message is
/// "PATH: offset N: what is wrong there".
Result<TraceFile> parse_trace(const std::string& path, std::span<const std::byte> bytes);

/// parse_trace() of a regular file. Fails with errno when it cannot be read.
Result<TraceFile> read_trace(const std::string& path);

/// The files that an argument of the command line stands for: every `<argument>.<rank>.ch3trace` and
/// `<argument>.<rank>.client.ch3trace` in order of rank; if there is none, itself. Never empty.
Result<std::vector<std::string>> find_traces(const std::string& argument);

}  // namespace ch3_offload
