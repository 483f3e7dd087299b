// ch3-offload-info: the settings as the environment has them, what this node has, and what the library would choose.
//
// With --check: the same of several nodes, and whether messages go between them.
//
// Exit status: 0; 1 when MPI_Init would fail here, because of a setting or of the node, or when a check finds
// something wrong; 2 when the command line makes no sense. docs/man/ch3-offload-info.1.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "check/agent.h"
#include "check/check_report.h"
#include "check/node_check.h"
#include "info_report.h"
#include "program.h"

namespace ch3_offload {
namespace {

int complain(const std::string& what) {
  fmt::print(stderr, "ch3-offload-info: {}\n", what);
  return 1;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Where this program is; the other nodes have it under the same path.
std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  return error ? "ch3-offload-info" : path;
}

int check(const std::string& hosts_text, CheckOptions options, bool as_json) {
  Result<std::vector<std::string>> hosts = hosts_of(hosts_text);
  if (!hosts.ok()) {
    complain("--check: " + hosts.error().message);
    return 2;
  }
  if (options.launcher.empty()) {
    complain("--launcher: it takes a command");
    return 2;
  }
  options.hosts = std::move(hosts.value());
  options.program = own_path();
  // A launcher hands the words to a shell of the node, or does not: quoting would be wrong in one of the cases.
  if (options.program.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._+-") != std::string::npos)
    return complain(
        fmt::format("--check: \"{}\" has characters that a shell takes for others: install under "
                    "another path",
                    options.program));
  options.shows_progress = ::isatty(STDERR_FILENO) != 0;
  const Checked checked = run_check(options);
  const std::vector<CheckFinding> findings = judge(checked);
  int error = 0;
  if (as_json) {
    error = write_json(checked, findings, stdout);
  } else {
    fmt::print("{}", render(checked, findings));
  }
  if (error != 0) return complain(fmt::format("standard output: {}", std::strerror(error)));
  return std::ranges::any_of(findings, &CheckFinding::is_wrong) ? 1 : 0;
}

int run(int argc, char** argv) {
  bool as_json = false, as_settings_file = false, is_agent = false, all_pairs = false;
  std::string hosts;
  std::string launcher = "ssh -o BatchMode=yes -o ConnectTimeout=10";
  double limit_s = 5;
  CLI::App app("Shows the settings of ch3:offload, what this node has, and what would be chosen, and why.");
  app.set_version_flag("--version", "ch3-offload-info " PACKAGE_VERSION);
  app.add_flag("--json", as_json, "write JSON");
  CLI::Option* const writes_file = app.add_flag(
      "--settings-file", as_settings_file, "write the settings as a file of settings (ch3-offload.conf)");
  CLI::Option* const checks =
      app.add_option("--check", hosts,
                     "look at these nodes (node1,node2, or a file of hosts), and test the ways between them");
  checks->excludes(writes_file);
  app.get_option("--json")->excludes(writes_file);
  app.add_option("--launcher", launcher, "what runs a program on a node: these words, the node, the program")
      ->needs(checks)
      ->capture_default_str();
  app.add_option("--limit", limit_s, "seconds without an answer after which a way does not work")
      ->needs(checks)
      ->check([](const std::string& text) {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        const bool is_right = *end == '\0' && seconds >= 0.1 && seconds <= 3600;  // Not of what is no number.
        return is_right ? std::string() : text + " is not a number of seconds from 0.1 to 3600";
      })
      ->capture_default_str();
  app.add_flag("--all-pairs", all_pairs,
               fmt::format("test all ways, also of more than {} nodes", kMostForAllPairs))
      ->needs(checks);
  app.add_flag("--check-agent", is_agent)->group("");  // What --check runs on each node.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (is_agent) return run_agent();
  if (checks->count() > 0)
    return check(hosts,
                 {.launcher = words_of(launcher),
                  .limit_ms = static_cast<int>(limit_s * 1000),
                  .all_pairs = all_pairs},
                 as_json);

  const Environment environment = read_environment();
  std::optional<NodeFacts> facts;
  if (environment.valid() && !as_settings_file) facts = probe_node(environment.config);
  const NodeFacts* const shown = facts ? &*facts : nullptr;
  int error = 0;
  if (as_json) {
    error = write_json(environment, shown, stdout);
  } else {
    fmt::print("{}", as_settings_file ? render_settings_file(environment) : render_text(environment, shown));
  }
  if (error != 0) return complain(fmt::format("standard output: {}", std::strerror(error)));

  int status = 0;
  for (const SettingState& state : environment.settings) {
    if (state.complaint) status = complain(*state.complaint);
  }
  if (!facts) return status;
  for (const std::string& why : init_errors(environment, *facts)) status = complain(why);
  return status;
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  return ch3_offload::run_program("ch3-offload-info", ch3_offload::run, argc, argv);
}
