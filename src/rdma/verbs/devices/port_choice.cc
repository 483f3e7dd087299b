#include "rdma/verbs/devices/port_choice.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

std::size_t most_rails(const VerbsConfig& config) noexcept {
  return std::min<std::size_t>(config.most_rails, VerbsAddress::kMostRails);
}

/// Whether packets from both reach the same ports, as far as is known.
bool is_one_network(const VerbsPort& a, const VerbsPort& b) noexcept {
  return a.network != 0 && a.network == b.network && a.manager_lid == b.manager_lid;
}

/// The first one, and those that may share its load.
std::vector<VerbsPort> like_first(const std::vector<VerbsPort>& usable, bool are_named) {
  std::vector<VerbsPort> like;
  std::ranges::copy_if(usable, std::back_inserter(like), [&](const VerbsPort& port) {
    return port.ethernet == usable[0].ethernet && (are_named || port.rate_gbit == usable[0].rate_gbit);
  });
  return like;
}

/// The ports of `like` that can replace the first one. If `enough` of them are near, only these.
std::vector<VerbsPort> serve_alike(const std::vector<VerbsPort>& like, std::size_t enough) {
  std::vector<VerbsPort> alike;
  std::ranges::copy_if(like, std::back_inserter(alike), [&](const VerbsPort& port) {
    return port.is_same(like[0]) || is_one_network(port, like[0]);
  });
  const auto near_count = static_cast<std::size_t>(std::ranges::count_if(alike, &VerbsPort::near));
  if (near_count >= enough) std::erase_if(alike, [](const VerbsPort& port) { return !port.near; });
  return alike;
}

}  // namespace

bool is_near(const ibv_device& device, const ProcessorSet& processors) {
  std::string list;
  std::ifstream file(std::string(device.ibdev_path) + "/device/local_cpulist");
  if (processors.empty() || !std::getline(file, list)) return true;
  const auto near_ones = parse_processors(list);
  if (!near_ones) return true;
  const auto count =
      std::ranges::count_if(*near_ones, [&](std::uint32_t number) { return processors.contains(number); });
  return 2 * static_cast<std::size_t>(count) >= processors.size();
}

std::vector<VerbsPort> choose_rails(const std::vector<VerbsPort>& usable, const VerbsConfig& config) {
  std::vector<VerbsPort> like = like_first(usable, !config.device.empty());
  const std::size_t most = most_rails(config);
  if (like.size() <= most) return like;
  const std::vector<VerbsPort> alike =
      config.device.empty() ? serve_alike(like, most) : std::vector<VerbsPort>{};
  if (alike.size() < most) {  // The others are of other networks, or the user has chosen.
    like.resize(most);
    return like;
  }
  const auto is_taken = [&](const VerbsPort& port) {
    for (std::size_t i = 0; i < most; ++i)
      if (port.is_same(alike[(config.number_on_node * most + i) % alike.size()])) return true;
    return false;
  };
  std::vector<VerbsPort> chosen;
  std::ranges::copy_if(like, std::back_inserter(chosen), is_taken);
  return chosen;
}

std::string why_first_rail(const std::vector<VerbsPort>& usable, const VerbsConfig& config) {
  if (!config.device.empty()) return "it is the first usable one of those asked for";
  if (usable.size() == 1) return "it is the only usable one";
  const auto as_fast_as = [](const VerbsPort& port) { return "it is as fast as " + port.name(); };
  const VerbsPort& first = usable[0];
  const VerbsPort& second = usable[1];
  const std::vector<VerbsPort> like = like_first(usable, false);
  const VerbsPort chosen = choose_rails(usable, config)[0];
  const auto far_one = std::ranges::find_if(
      like, [&](const VerbsPort& port) { return !port.near && is_one_network(port, chosen); });
  if (like.size() > most_rails(config) && chosen.near && far_one != like.end())
    return as_fast_as(*far_one) + ", and near to this process";
  if (!chosen.is_same(first)) return as_fast_as(first) + ", and the processes of a node take turns";
  if (first.rate_gbit != second.rate_gbit) return "it is the fastest usable one";
  if (first.ethernet != second.ethernet) return as_fast_as(second) + ", and InfiniBand goes before RoCE";
  return as_fast_as(second) + ", and its name is the first";
}

}  // namespace ch3_offload
