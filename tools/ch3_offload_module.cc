// ch3-offload-module: checks a module, and runs it in a simulated group, before it is loaded into a processor.
//
// Exit status: 0; 1 when the module cannot be loaded, has failed, or did not do what --expect says; 2 when the
// command line makes no sense. docs/man/ch3-offload-module.1.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/environment.h"
#include "ch3_offload/making.h"
#include "modules/module_runner.h"
#include "modules/simulated_group.h"
#include "program.h"
#include "text_table.h"

namespace ch3_offload {
namespace {

int complain(const std::string& what) {
  fmt::print(stderr, "ch3-offload-module: {}\n", what);
  return 1;
}

/// Nothing: it cannot be read, and the user knows.
std::optional<std::string> text_of(const std::string& path) {
  std::error_code error;
  const bool is_file =
      !std::filesystem::is_directory(path, error);  // A stream throws at a directory's contents.
  std::ifstream file(path, std::ios::binary);
  if (is_file && file) {
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file.bad()) return text;
  }
  complain(path + ": it cannot be read");
  return std::nullopt;
}

/// As ch3_offload_module_load() would call it.
std::string name_of(const std::string& path) { return std::filesystem::path(path).stem().string(); }

/// What modules may use with the settings of this process. Nothing: some are wrong, and the user knows.
std::optional<ModuleBudgets> budgets() {
  const Environment environment = read_environment();
  for (const SettingState& state : environment.settings)
    if (state.complaint) complain(*state.complaint);
  if (!environment.valid()) return std::nullopt;
  return budgets_of(engine_config(environment.config));
}

int check(const std::vector<std::string>& paths) {
  const std::optional<ModuleBudgets> allowed = budgets();
  if (!allowed) return 1;
  int status = 0;
  for (const std::string& path : paths) {
    const std::optional<std::string> text = text_of(path);
    if (!text) {
      status = 1;
      continue;
    }
    std::string error;
    const auto module = Module::load(name_of(path), *text, {}, *allowed, error);
    if (module == nullptr) {
      status = complain(path + ": " + error);
      continue;
    }
    const ModuleUse use = module->use();
    fmt::print("{}: can be loaded; {} instructions, {} bytes of {}\n", path, use.instructions,
               use.memory_bytes, allowed->memory_bytes);
  }
  return status;
}

struct RunOptions {
  std::string path;
  std::uint32_t ranks = 4;
  std::uint32_t root = 0;
  std::uint32_t tag = 0;
  std::uint32_t messages = 1;
  bool from_each = false;
  std::string text;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::uint64_t seed = 1;
  std::size_t most = 100'000;
  std::uint64_t time_ms = 1000;
  std::optional<std::size_t> expected;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// The payload as the user gave it: text, integers or numbers; else its bytes.
std::string shown(const std::string& payload, const RunOptions& options) {
  const auto values = [&](auto typed) {
    std::string line;
    for (std::size_t at = 0; at + sizeof typed <= payload.size(); at += sizeof typed) {
      std::memcpy(&typed, payload.data() + at, sizeof typed);
      line += fmt::format("{}{}", at > 0 ? " " : "", typed);
    }
    return line;
  };
  const bool is_whole = payload.size() % 8 == 0 && !payload.empty();
  if (!options.integers.empty() && is_whole) return values(std::int64_t{});
  if (!options.numbers.empty() && is_whole) return values(double{});
  std::string line;
  for (const char one : payload.substr(0, 60)) {
    const auto c = static_cast<unsigned char>(one);
    line += c >= ' ' && c < 127 ? std::string(1, one) : fmt::format("\\x{:02x}", c);
  }
  return line + (payload.size() > 60 ? "..." : "");
}

int run(const RunOptions& options) {
  const std::optional<std::string> text = text_of(options.path);
  if (!text) return 1;
  if (options.root >= options.ranks) {
    complain(fmt::format("--root: there are ranks 0 to {}", options.ranks - 1));
    return 2;
  }
  const std::optional<ModuleBudgets> allowed = budgets();
  if (!allowed) return 1;
  SimulatedGroup group(options.ranks, options.seed, *allowed);
  if (const std::string problem = group.load(name_of(options.path), *text); !problem.empty())
    return complain(options.path + ": " + problem);
  const std::string payload = !options.integers.empty()  ? bytes_of(options.integers)
                              : !options.numbers.empty() ? bytes_of(options.numbers)
                                                         : options.text;
  for (std::uint32_t i = 0; i < options.messages; ++i)
    for (std::uint32_t rank = 0; rank < options.ranks; ++rank)
      if (options.from_each || rank == options.root) group.give(rank, options.root, options.tag, payload);
  const std::string problem = group.run(options.most, options.time_ms);
  for (const std::string& line : group.lines()) fmt::print("{}\n", line);
  TextTable table({">rank", ">root", ">tag", ">bytes", "delivered"});
  for (const SimulatedGroup::Delivery& one : group.deliveries())
    table.add({std::to_string(one.rank), std::to_string(one.root), std::to_string(one.tag),
               std::to_string(one.payload.size()), shown(one.payload, options)});
  if (!group.deliveries().empty()) fmt::print("{}", table.render());
  fmt::print(
      "{} ranks: {} messages arrived, {} were delivered{}; an activation took at most {} instructions of "
      "{}\n",
      options.ranks, group.arrived(), group.deliveries().size(),
      group.fired() == 0 ? "" : fmt::format(", timers fired {} times", group.fired()),
      group.most_instructions(), allowed->instructions);
  if (!problem.empty()) return complain(problem);
  if (options.expected && *options.expected != group.deliveries().size())
    return complain(fmt::format("{} deliveries were expected", *options.expected));
  return 0;
}

int main_of(int argc, char** argv) {
  CLI::App app{
      "Checks modules of the network processor, and runs them in a simulated group (docs/modules.md)."};
  app.set_version_flag("--version", "ch3-offload-module " PACKAGE_VERSION);
  app.require_subcommand(1);
  std::vector<std::string> paths;
  CLI::App* const checking =
      app.add_subcommand("check", "compiles and loads each file, as a processor would");
  checking->add_option("FILE", paths, "a module's text")->required();
  RunOptions options;
  CLI::App* const running =
      app.add_subcommand("run", "runs a module in a simulated group, and shows what it delivers");
  running->add_option("FILE", options.path, "the module's text")->required();
  running->add_option("--ranks", options.ranks, "processes of the group")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  running
      ->add_option("--root", options.root, "the root of the messages, whose process gives them to its module")
      ->capture_default_str();
  running->add_option("--tag", options.tag, "their tag")
      ->check(CLI::Range(0, INT32_MAX))
      ->capture_default_str();
  running->add_option("--messages", options.messages, "so many")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  running->add_flag("--from-each", options.from_each,
                    "every process gives them to its module, not the root's alone");
  CLI::Option* const as_text = running->add_option("--text", options.text, "their payload, as text");
  CLI::Option* const as_integers =
      running->add_option("--integers", options.integers, "their payload, as integers of 64 bits")
          ->delimiter(',')
          ->excludes(as_text);
  running->add_option("--numbers", options.numbers, "their payload, as floating point of 64 bits")
      ->delimiter(',')
      ->excludes(as_text)
      ->excludes(as_integers);
  running->add_option("--seed", options.seed, "chooses which message arrives next")->capture_default_str();
  running->add_option("--most", options.most, "messages and timers, before it is taken to have no end")
      ->capture_default_str();
  running->add_option("--time", options.time_ms, "until when timers fire, milliseconds of the group's clock")
      ->check(CLI::Range(0, 86'400'000))
      ->capture_default_str();
  running->add_option("--expect", options.expected, "fail unless so many are delivered");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return checking->parsed() ? check(paths) : run(options);
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  return ch3_offload::run_program("ch3-offload-module", ch3_offload::main_of, argc, argv);
}
