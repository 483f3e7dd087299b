// ch3-offload-trace: looks at the trace files that MPIR_CVAR_CH3_OFFLOAD_TRACE leaves behind.
//
// Exit status: 0; 1 when a file cannot be used or written; 2 when the command line makes no sense.
// docs/man/ch3-offload-trace.1, docs/trace.md.

#include <fmt/format.h>
#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "program.h"
#include "trace_file.h"
#include "trace_job.h"
#include "trace_json.h"
#include "trace_show.h"
#include "trace_summary.h"

namespace ch3_offload {
namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output = "-";
  std::string message;
  std::size_t slowest = 0;
  bool list = false;
  bool ascii = false;
  std::size_t most_pairs = 20;
};

/// Says on stderr what is wrong; the exit status.
int complain(const std::string& what) {
  fmt::print(stderr, "ch3-offload-trace: {}\n", what);
  return 1;
}

Result<TraceJob> load(const std::vector<std::string>& inputs) {
  std::vector<TraceFile> files;
  for (const std::string& input : inputs) {
    auto paths = find_traces(input);
    if (!paths.ok()) return paths.error();
    for (const std::string& path : paths.value()) {
      auto file = read_trace(path);
      if (!file.ok()) return file.error();
      files.push_back(std::move(file.value()));
    }
  }
  return TraceJob::merge(files);
}

void print_notes(const TraceJob& job, std::FILE* out) {
  for (const std::string& note : job.notes()) fmt::print(out, "note: {}\n", note);
}

int run_json(const TraceJob& job, const Options& options) {
  print_notes(job, stderr);
  if (options.output == "-") {
    const int error = write_json(job, stdout);
    return error == 0 ? 0 : complain(fmt::format("standard output: {}", std::strerror(error)));
  }
  std::FILE* const file = std::fopen(options.output.c_str(), "w");
  if (file == nullptr) return complain(fmt::format("{}: {}", options.output, std::strerror(errno)));
  int error = write_json(job, file);
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error == 0 ? 0 : complain(fmt::format("{}: {}", options.output, std::strerror(error)));
}

/// Why a message is not there, and which ones are.
std::string not_found(const TraceJob& job, const MessageName& name) {
  if (name.source >= job.job_size() || name.destination >= job.job_size())
    return fmt::format("message {}: the job has {} ranks", to_string(name), job.job_size());
  const Message* first = nullptr;
  const Message* last = nullptr;
  for (const Message& message : job.messages()) {
    if (message.name.source != name.source || message.name.destination != name.destination) continue;
    if (first == nullptr) first = &message;
    last = &message;
  }
  if (first == nullptr) {
    return fmt::format("message {}: no message from {} to {} in these files (--list shows all)",
                       to_string(name), name.source, name.destination);
  }
  return fmt::format("message {}: not in these files, which have numbers {} to {} of that pair",
                     to_string(name), first->name.number, last->name.number);
}

int run_show(const TraceJob& job, const Options& options) {
  print_notes(job, stdout);
  const bool unicode = !options.ascii && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  const LineArt art = unicode ? LineArt::kUnicode : LineArt::kAscii;
  if (options.list) {
    fmt::print("{}", render_list(job));
    return 0;
  }
  if (options.message.empty()) {
    const auto messages = slowest(job, options.slowest);
    if (messages.empty())
      fmt::print("no message has both its SendPosted and its ReceiveDone in these files\n");
    for (const Message* message : messages)
      fmt::print("{}{}", message == messages.front() ? "" : "\n", render_tree(*message, job, art));
    return 0;
  }
  const auto name = parse_message_name(options.message);
  if (!name) return complain(fmt::format("--message takes SRC:DST:NUMBER, not '{}'", options.message)), 2;
  const Message* const message = job.find(*name);
  if (message == nullptr) return complain(not_found(job, *name));
  fmt::print("{}", render_tree(*message, job, art));
  return 0;
}

int run_summary(const TraceJob& job, const Options& options) {
  print_notes(job, stdout);
  fmt::print("{}", render_summary(job, options.most_pairs));
  return 0;
}

/// Checks that an option's value is a whole number from `least` on. CLI11's own messages name the greatest
/// double instead.
CLI::Validator whole_number_from(std::size_t least) {
  const auto check = [least](const std::string& text) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_right = error == std::errc{} && end == text.data() + text.size() && value >= least;
    return is_right ? std::string() : fmt::format("takes a whole number from {} on, not '{}'", least, text);
  };
  return CLI::Validator(check, "");
}

void add_inputs(CLI::App& command, Options& options) {
  command
      .add_option("FILES", options.inputs,
                  "trace files, or the prefix that MPIR_CVAR_CH3_OFFLOAD_TRACE was set to")
      ->required();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Looks at the traces of ch3:offload: every message's life, all ranks on one clock.");
  app.set_version_flag("--version", "ch3-offload-trace " PACKAGE_VERSION);
  app.require_subcommand(1);

  CLI::App* const json =
      app.add_subcommand("json", "Write trace-event JSON, for chrome://tracing or Perfetto");
  json->add_option("-o,--output", options.output, "where to write; - is standard output")
      ->capture_default_str();
  add_inputs(*json, options);

  CLI::App* const show = app.add_subcommand("show", "Print messages on the terminal");
  CLI::Option_group* const what = show->add_option_group("what", "exactly one of");
  what->add_option("--message", options.message, "this message, as a tree: SRC:DST:NUMBER");
  what->add_option("--slowest", options.slowest, "the N slowest messages, as trees")
      ->check(whole_number_from(1));
  what->add_flag("--list", options.list, "all messages, a line each");
  what->require_option(1);
  show->add_flag("--ascii", options.ascii, "draw trees in ASCII");
  add_inputs(*show, options);

  CLI::App* const summary = app.add_subcommand("summary", "Print tables per pair, per protocol and per rank");
  summary
      ->add_option("--pairs", options.most_pairs,
                   "show this many pairs of ranks, those with most bytes; 0: all")
      ->check(whole_number_from(0))
      ->capture_default_str();
  add_inputs(*summary, options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  auto job = load(options.inputs);
  if (!job.ok()) return complain(job.error().message);
  if (json->parsed()) return run_json(job.value(), options);
  return show->parsed() ? run_show(job.value(), options) : run_summary(job.value(), options);
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  return ch3_offload::run_program("ch3-offload-trace", ch3_offload::run, argc, argv);
}
