// What ch3-offload-info --check and its agents on the nodes say to each other, in lines.
//
// Each line of an agent begins with kAgentPrefix: what else comes from a node is a word of its shell or of the
// launcher. A line is words with spaces between; the last one may be a text. Both ends are of the user, but
// an agent may be of another version: whatever comes is parsed, and what makes no sense is left out.
//
//   to an agent     self NUMBER COUNT                           first
//                   set VARIABLE TEXT                           a control variable
//                   secret HEX
//                   limit MILLISECONDS                          PairTester
//                   probe
//                   clock
//                   meet NUMBER begins|answers NETWORK ADDRESS
//                   dial NUMBER HOST PORT
//   of an agent     fact NAME TEXT ...                          NodeReport
//                   probed                                      the facts are over
//                   clock NANOSECONDS                           since 1970
//                   met NUMBER STAGE NANOSECONDS BYTES TEXT     PairResult
//                   dialled NUMBER TEXT                         why not; empty: it was
//                   log TEXT                                    what the library has to say

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/pair_tester.h"

namespace ch3_offload {

inline constexpr std::string_view kAgentPrefix = "ch3-offload-check: ";

/// A provider of a node, for messages to other nodes.
struct NodeNetwork {
  std::string name{};           ///< "verbs", "tcp"
  std::string address{};        ///< Provider::local_address().
  std::uint32_t rate_mbit = 0;  ///< Of its link. 0: not known.
  std::uint32_t mtu_bytes = 0;  ///< 0: not known.
  std::string device{};         ///< "mlx5_0:1", "eth0". Empty: not known.
};

/// What a node says of itself.
struct NodeReport {
  std::string version{};
  std::uint32_t wire_version = 0;
  std::string host_name{};
  std::uint32_t cores = 0;
  std::uint64_t locked_bytes = UINT64_MAX;  ///< UINT64_MAX: no limit, or none for this process.
  std::string congestion_control{};         ///< Of TCP. Empty: not known.
  std::vector<NodeNetwork> networks{};      ///< The best one first.
  std::vector<std::string> wrong{};         ///< Why MPI_Init would fail there.
  std::vector<std::string> notes{};         ///< Settings without a meaning there; networks that it lacks.
};

/// The lines of a report, without the prefix.
std::vector<std::string> to_lines(const NodeReport& report);
/// Takes one of these lines. False: it is none.
bool take_line(std::string_view line, NodeReport& report);

std::string to_line(std::uint32_t peer, const PairResult& result);
struct MetLine {
  std::uint32_t peer = 0;
  PairResult result;
};
std::optional<MetLine> met_line(std::string_view line);

/// The first word of `line`, which is taken out of it with the space behind it.
std::string_view take_word(std::string_view& line);
/// The same as a number. Nothing: it is none, or too large.
std::optional<std::uint64_t> take_number(std::string_view& line);
/// A text without line ends.
std::string one_line(std::string text);

/// Lines out of a stream of bytes.
class LineReader {
 public:
  static constexpr std::size_t kMostBytes = 65536;  ///< Of a line. What is longer is cut in lines.

  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole line, without its end.
  std::optional<std::string> next();

 private:
  std::string bytes_;
};

}  // namespace ch3_offload
