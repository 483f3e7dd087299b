// ch3-offload-info: the settings as the environment has them, what this node has, and what the library would choose.
//
// Exit status: 0; 1 when MPI_Init would fail here, because of a setting or of the node; 2 when the command line
// makes no sense. docs/man/ch3-offload-info.1.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>

#include "info_report.h"

namespace ch3_offload {
namespace {

int complain(const std::string& what) {
  fmt::print(stderr, "ch3-offload-info: {}\n", what);
  return 1;
}

int run(int argc, char** argv) {
  bool as_json = false;
  CLI::App app("Shows the settings of ch3:offload, what this node has, and what would be chosen, and why.");
  app.set_version_flag("--version", "ch3-offload-info " PACKAGE_VERSION);
  app.add_flag("--json", as_json, "write JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  const Environment environment = read_environment();
  std::optional<NodeFacts> facts;
  if (environment.valid()) facts = probe_node(environment.config);
  const NodeFacts* const shown = facts ? &*facts : nullptr;
  int error = 0;
  if (as_json) {
    error = write_json(environment, shown, stdout);
  } else {
    fmt::print("{}", render_text(environment, shown));
    if (std::fflush(stdout) != 0) error = errno;
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
  try {
    return ch3_offload::run(argc, argv);
  } catch (const std::exception& error) {
    return ch3_offload::complain(error.what());
  }
}
