// Messages on the terminal: one as a tree, many as a list.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace_job.h"

namespace ch3_offload {

enum class LineArt { kAscii, kUnicode };

/// "SRC:DST:NUMBER"; nothing if it is not that.
std::optional<MessageName> parse_message_name(std::string_view text);

/// One message's life: what either side did and when, in us since its first event.
std::string render_tree(const Message& message, const TraceJob& job, LineArt art);

/// One line a message, in order of their first events.
std::string render_list(const TraceJob& job);

/// The messages with the highest latency, the slowest first. Those whose latency is not known are left out.
std::vector<const Message*> slowest(const TraceJob& job, std::size_t count);

}  // namespace ch3_offload
