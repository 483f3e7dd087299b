#include "trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/engine.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kSuffix = ".ch3trace";
constexpr std::string_view kClientSuffix = ".client.ch3trace";

Error broken(const std::string& path, std::size_t offset, std::string_view what) {
  return {Status::kProtocol, 0, fmt::format("{}: offset {}: {}", path, offset, what)};
}

Error failed(const std::string& path, int error_number) {
  return {Status::kUnsupported, error_number, fmt::format("{}: {}", path, std::strerror(error_number))};
}

/// What is wrong with a field, and where it is; nothing when all is well.
struct Flaw {
  std::size_t offset;
  std::string what;
};

std::optional<Flaw> check_clocks(const TraceFileHeader& header) {
  const TraceClockPair& start = header.at_start;
  const TraceClockPair& end = header.at_write;
  const std::uint64_t times[] = {start.clock_ns, start.realtime_ns, end.clock_ns, end.realtime_ns};
  for (std::size_t i = 0; i < std::size(times); ++i) {
    if (times[i] >= kTraceLimit)
      return Flaw{offsetof(TraceFileHeader, at_start) + i * sizeof times[0], "a time out of range"};
  }
  if (end.clock_ns < start.clock_ns)
    return Flaw{offsetof(TraceFileHeader, at_write), "written before the trace began"};
  if (end.clock_ns - start.clock_ns > kLongestTraceNs)
    return Flaw{offsetof(TraceFileHeader, at_write), "the trace is years long"};
  if (header.clock > static_cast<std::uint16_t>(TraceClock::kSimulated))
    return Flaw{offsetof(TraceFileHeader, clock), fmt::format("unknown clock {}", header.clock)};
  if (header.side > static_cast<std::uint16_t>(TraceSide::kClient))
    return Flaw{offsetof(TraceFileHeader, side), fmt::format("unknown side {}", header.side)};
  return std::nullopt;
}

std::optional<Flaw> check_host(const TraceFileHeader& header) {
  const std::string_view field{header.host, sizeof header.host};
  const std::size_t length = field.find('\0');
  if (length == field.npos) return Flaw{offsetof(TraceFileHeader, host), "the host name does not end in NUL"};
  for (std::size_t i = 0; i < length; ++i) {
    if (field[i] < 0x21 || field[i] > 0x7E)
      return Flaw{offsetof(TraceFileHeader, host) + i, "the host name is not printable ASCII"};
  }
  return std::nullopt;
}

std::optional<Flaw> check_header(const TraceFileHeader& header, std::size_t file_bytes) {
  if (std::memcmp(header.magic, kTraceMagic, sizeof header.magic) != 0)
    return Flaw{0, "not a trace of ch3:offload (it does not start with CH3TRACE)"};
  if (header.version != kTraceVersion) {
    return Flaw{
        offsetof(TraceFileHeader, version),
        fmt::format("trace version {}; this program reads version {}", header.version, kTraceVersion)};
  }
  if (header.record_bytes != sizeof(TraceRecord)) {
    return Flaw{offsetof(TraceFileHeader, record_bytes),
                fmt::format("records of {} bytes; version {} has {}", header.record_bytes, kTraceVersion,
                            sizeof(TraceRecord))};
  }
  if (header.job_size == 0) return Flaw{offsetof(TraceFileHeader, job_size), "a job of no processes"};
  if (header.self >= header.job_size) {
    return Flaw{offsetof(TraceFileHeader, self),
                fmt::format("rank {} in a job of {} processes", header.self, header.job_size)};
  }
  const std::size_t body_bytes = file_bytes - sizeof header;
  if (body_bytes % sizeof(TraceRecord) != 0 || header.count != body_bytes / sizeof(TraceRecord)) {
    return Flaw{offsetof(TraceFileHeader, count),
                fmt::format("the header counts {} records of {} bytes, but {} bytes follow it", header.count,
                            sizeof(TraceRecord), body_bytes)};
  }
  if (header.first_index >= kTraceLimit)
    return Flaw{offsetof(TraceFileHeader, first_index), "the first index is out of range"};
  if (auto flaw = check_clocks(header)) return flaw;
  return check_host(header);
}

/// `earliest_ns`: the time of the record before. Offsets are in the record.
std::optional<Flaw> check_record(const TraceRecord& record, const TraceFileHeader& header,
                                 std::uint64_t earliest_ns) {
  if (record.time_ns < earliest_ns)
    return Flaw{offsetof(TraceRecord, time_ns), "an event before the one that it follows"};
  if (record.time_ns > header.at_write.clock_ns)
    return Flaw{offsetof(TraceRecord, time_ns), "an event after the file was written"};
  if (record.peer >= header.job_size) {
    return Flaw{offsetof(TraceRecord, peer),
                fmt::format("peer {} in a job of {} processes", record.peer, header.job_size)};
  }
  if (record.event >= static_cast<std::uint8_t>(TraceEvent::kCount))
    return Flaw{offsetof(TraceRecord, event), fmt::format("unknown event {}", record.event)};
  const auto event = static_cast<TraceEvent>(record.event);
  const bool by_client = header.side == static_cast<std::uint16_t>(TraceSide::kClient);
  if (is_of_client(event) != by_client) {
    return Flaw{offsetof(TraceRecord, event),
                fmt::format("{} in a trace of the {}'s side", trace_event_name(event),
                            by_client ? "client" : "engine")};
  }
  if (record.outcome > (is_command(event) ? static_cast<std::uint8_t>(Progressed::kFailed) : 0))
    return Flaw{offsetof(TraceRecord, outcome), fmt::format("unknown outcome {}", record.outcome)};
  if (is_command(event) && record.number > header.at_write.clock_ns - record.time_ns)
    return Flaw{offsetof(TraceRecord, number), "a command that returned after the file was written"};
  return std::nullopt;
}

/// The rank in "<stem>.<rank>.ch3trace" or "<stem>.<rank>.client.ch3trace"; nothing if `name` is not of that
/// form.
std::optional<std::uint32_t> rank_in(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(stem.size());
  const std::string_view suffix = name.ends_with(kClientSuffix) ? kClientSuffix : kSuffix;
  if (name.size() < suffix.size() + 2 || name.front() != '.') return std::nullopt;
  name.remove_prefix(1);
  name.remove_suffix(suffix.size());
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

/// Closes a descriptor when it goes out of scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<TraceFile> parse_trace(const std::string& path, std::span<const std::byte> bytes) {
  TraceFile file{path, {}, {}};
  if (bytes.size() < sizeof file.header) {
    return broken(path, bytes.size(),
                  fmt::format("the file ends inside its header of {} bytes", sizeof file.header));
  }
  std::memcpy(&file.header, bytes.data(), sizeof file.header);
  if (const auto flaw = check_header(file.header, bytes.size()))
    return broken(path, flaw->offset, flaw->what);

  file.records.resize(file.header.count);
  std::uint64_t earliest_ns = file.header.at_start.clock_ns;
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    const std::size_t offset = sizeof file.header + i * sizeof(TraceRecord);
    TraceRecord& record = file.records[i];
    std::memcpy(&record, bytes.data() + offset, sizeof record);
    if (const auto flaw = check_record(record, file.header, earliest_ns))
      return broken(path, offset + flaw->offset, flaw->what);
    earliest_ns = record.time_ns;
  }
  return file;
}

Result<TraceFile> read_trace(const std::string& path) {
  // O_NONBLOCK: a FIFO must not stop the program before fstat() has said what it is.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return failed(path, errno);
  struct stat status {};
  if (fstat(file.fd, &status) != 0) return failed(path, errno);
  if (!S_ISREG(status.st_mode)) return Error{Status::kUnsupported, 0, fmt::format("{}: not a file", path)};

  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(file.fd, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path, errno);
    if (got == 0) break;  // It shrank: parse_trace() finds what is missing.
    filled += static_cast<std::size_t>(got);
  }
  return parse_trace(path, std::span(bytes).first(filled));
}

Result<std::vector<std::string>> find_traces(const std::string& argument) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path prefix(argument);
  const fs::path directory = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
  const std::string stem = prefix.filename();
  std::vector<std::pair<std::uint32_t, std::string>> found;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto rank = rank_in(entry->path().filename().native(), stem))
      found.emplace_back(*rank, prefix.parent_path() / entry->path().filename());
  }
  if (found.empty()) {
    std::error_code ignored;
    if (fs::is_directory(argument, ignored)) {
      return Error{Status::kUnsupported, EISDIR,
                   fmt::format("{}: is a directory; give the files, or the prefix that "
                               "MPIR_CVAR_CH3_OFFLOAD_TRACE was set to",
                               argument)};
    }
    if (fs::exists(argument, ignored)) return std::vector{argument};
    if (error) return failed(directory, error.value());
    return Error{Status::kUnsupported, ENOENT,
                 fmt::format("{}: no such file, and no {}.<rank>{} either", argument, argument, kSuffix)};
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [rank, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace ch3_offload
