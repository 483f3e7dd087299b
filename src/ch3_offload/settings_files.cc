#include "ch3_offload/settings_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <system_error>
#include <utility>

#include "ch3_offload/setting_names.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool is_control(char letter) noexcept {
  return (static_cast<unsigned char>(letter) < ' ' && letter != '\t') || letter == '\x7f';
}

/// Why a file that is open should not be read; empty: nothing speaks against it.
std::string why_not(const FileDescriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return std::generic_category().message(errno);
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if ((status.st_mode & S_IWOTH) != 0) return "anybody may write to it (chmod o-w makes that right)";
  if (std::cmp_greater(status.st_size, SettingsFiles::kMostBytes))
    return "it is longer than " + std::to_string(SettingsFiles::kMostBytes / 1024) + " KiB";
  return {};
}

/// At most kMostBytes, into `text`. Why it failed; empty: it did not.
std::string read_text(const FileDescriptor& file, std::string& text) {
  text.resize(SettingsFiles::kMostBytes);
  const ssize_t length = read_all(file, std::as_writable_bytes(std::span(text)));
  if (length < 0) return std::generic_category().message(errno);
  text.resize(static_cast<std::size_t>(length));
  return {};
}

/// Why `name` is no setting, and what was probably meant.
std::string complain_of(std::string_view name) {
  const std::string what = "there is no setting \"" + std::string(name) + '"';
  std::string_view own = without_prefix(name);
  if (own.empty()) own = name;
  const std::string full = (own.starts_with(kOwnNames) ? "" : std::string(kOwnNames)) + std::string(own);
  const Setting* const nearest = find_nearest(full, most_slips(full));
  if (nearest == nullptr && name.starts_with("MPIR_CVAR_") && !own.starts_with(kOwnNames))
    return what + " of ch3:offload: MPICH reads its own from the environment only";
  return what + hint_at(nearest);
}

}  // namespace

SettingsFiles::SettingsFiles(std::vector<SettingsFile> files) : files_(std::move(files)) {
  for (SettingsFile& file : files_) read(file);
}

const FileSetting* SettingsFiles::find(const Setting& setting) const noexcept {
  const auto found = std::ranges::find(settings_, &setting, &FileSetting::setting);
  return found == settings_.end() ? nullptr : &*found;
}

void SettingsFiles::read(SettingsFile& file) {
  // O_NONBLOCK: else a pipe without a writer would hold up the job.
  const FileDescriptor opened(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int error = opened.valid() ? 0 : errno;
  file.exists = error != ENOENT && error != ENOTDIR;
  if (!file.exists && !file.must_exist) return;
  std::string text;
  file.why_not = error == 0 ? why_not(opened) : std::generic_category().message(error);
  if (file.why_not.empty()) file.why_not = read_text(opened, text);
  if (file.why_not.empty())
    take_lines(text, file);
  else
    warnings_.push_back(file.path + ": its settings are not used: " + file.why_not);
}

void SettingsFiles::take_lines(std::string_view text, SettingsFile& file) {
  std::size_t number = 0, without_effect = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string place = file.path + ":" + std::to_string(++number);
    const std::string why = take_line(trimmed(text.substr(0, end)), place, file);
    if (!why.empty() && ++without_effect <= kMostNamed) warnings_.push_back(place + ": " + why);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (without_effect > kMostNamed)
    warnings_.push_back(file.path + ": " + std::to_string(without_effect - kMostNamed) +
                        " further lines have no effect");
}

std::string SettingsFiles::take_line(std::string_view line, const std::string& place, SettingsFile& file) {
  if (line.empty() || line.front() == '#') return {};
  if (std::ranges::any_of(line, is_control)) return "a line with control characters has no effect";
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos)
    return "no \"=\" is in this line; it takes NAME = VALUE, or # and a comment";
  const std::string_view name = trimmed(line.substr(0, equals));
  const Setting* const setting = find_setting(name);
  if (setting == nullptr) return complain_of(name);
  ++file.settings;
  std::erase_if(settings_, [&](const FileSetting& one) { return one.setting == setting; });
  settings_.push_back({setting, std::string(trimmed(line.substr(equals + 1))), place});
  return {};
}

std::vector<SettingsFile> find_settings_files() {
  if (const char* const named = std::getenv("CH3_OFFLOAD_SETTINGS_FILE"))
    return *named == '\0' ? std::vector<SettingsFile>{}
                          : std::vector<SettingsFile>{{.path = named, .must_exist = true}};
  std::vector<SettingsFile> files{{.path = CH3_OFFLOAD_SYSCONFDIR "/ch3-offload.conf"}};
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') files.push_back({.path = std::string(home) + "/.ch3-offload.conf"});
  return files;
}

const SettingsFiles& settings_files() {
  static const SettingsFiles files(find_settings_files());
  return files;
}

}  // namespace ch3_offload
