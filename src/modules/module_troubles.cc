// ModuleRunner: who is told of what, and what the user reads.

#include <algorithm>
#include <new>
#include <string>

#include "modules/module_runner.h"

namespace ch3_offload {

/// A bounded line for a terminal.
std::string ModuleRunner::as_line(std::string_view text) {
  std::string line(text.substr(0, 4 * kMostModuleLine));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return line;
}

std::string ModuleRunner::has_failed(std::uint32_t rank) {
  return "the process of rank " + std::to_string(rank) + " has failed";
}

void ModuleRunner::tell_lost() {
  for (auto& [id, group] : groups_)
    tell_trouble(
        group, id,
        "a message was lost in the process of rank " + std::to_string(group.rank) + " for want of memory");
  has_lost_ = false;
}

std::size_t ModuleRunner::modules() const noexcept {
  std::size_t all = 0;
  for (const auto& [id, group] : groups_) all += group.modules.size();
  return all;
}

void ModuleRunner::warn(std::string_view name, std::string_view text) {
  std::string line = "modules";
  if (!name.empty()) line = "module " + std::string(name);
  engine_.warn(LogScope::kProcess, line + ": " + std::string(text));
}

void ModuleRunner::show_lines(const std::string& name, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (lines_ > kMostLines) return;
    if (++lines_ <= kMostLines)
      warn(name, line);
    else
      warn("", "they have logged " + std::to_string(kMostLines) + " lines. No more are shown");
  }
}

/// To the client.
void ModuleRunner::tell_trouble(Group& group, std::uint32_t id, std::string_view text) {
  if (group.troubles == kMostTroubles) return;
  departures_.push_back({make(text), Leaving::kTrouble, engine_.self(),
                         MatchKey{group.control_bits | kModuleTroubleTag, group.rank}, id, group.rank});
  ++group.troubles;
}

/// To all clients of the group.
void ModuleRunner::tell_group(Group& group, std::uint32_t id, std::string_view name, std::string_view text) {
  std::shared_ptr<ModuleMessage> message = make(text);
  ModuleHeader& header = message->header();
  header.kind = ModuleMessageKind::kTrouble;
  header.group = id;
  header.source = header.root = group.rank;
  header.set_name(name);
  for (std::uint32_t rank = 0; rank < group.size; ++rank)
    if (rank != group.rank)
      departures_.push_back({message, Leaving::kForModule, group.peer_of(rank), kProgramKey, id, rank});
  tell_trouble(group, id, text);
}

/// A message has come to a module that is not loaded here.
void ModuleRunner::missing(Group& group, std::uint32_t id, const std::string& name) {
  if (group.absent.contains(name)) return;
  if (group.absent.size() == kMostAbsent) group.absent.clear();
  group.absent.insert(name);
  const std::string text =
      "module " + name + " is not loaded in the process of rank " + std::to_string(group.rank);
  warn(name, "it is not loaded, and a message to it came");
  tell_group(group, id, name, text);
}

/// A module does not run here any more.
void ModuleRunner::stop(Group& group, std::uint32_t id, const std::string& name, std::string_view reason) {
  Loaded& loaded = group.modules[name];
  loaded.module.reset();
  loaded.stopped = as_line(reason);
  warn(name, "stopped: " + loaded.stopped);
  tell_group(group, id, name,
             "module " + name + " has stopped in the process of rank " + std::to_string(group.rank) + ": " +
                 loaded.stopped);
}

void ModuleRunner::handle_trouble(Group& group, ModuleMessage& message) {
  tell_trouble(group, message.header().group, as_line(message.text()));
}

void ModuleRunner::fail_peer(PeerId peer) noexcept {
  try {
    if (groups_.empty() || !failed_.insert(index_of(peer)).second) return;
    for (auto& [id, group] : groups_)
      for (std::uint32_t rank = 0; rank < group.size; ++rank)
        if (group.peer_of(rank) == peer) tell_trouble(group, id, has_failed(rank));
  } catch (const std::bad_alloc&) {
    // The client has other ways to know.
  }
  news_.messages = true;
}

}  // namespace ch3_offload
