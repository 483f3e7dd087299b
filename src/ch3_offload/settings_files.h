// The files of settings: one for all users of an installation, which an administrator writes, and one of each
// user.
//
//     # A line is a comment, empty, or a setting.
//     MPIR_CVAR_CH3_OFFLOAD_FABRIC = tcp
//
// The environment takes precedence over both, and the user's file over the other. What a file has that is no
// setting has no effect, and a warning says so. A setting with a wrong value is refused as in the
// environment.
//
// Threads: any. A SettingsFiles does not change once it is made.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/settings.h"

namespace ch3_offload {

struct FileSetting {
  const Setting* setting;
  std::string text;   ///< Empty: the default, whatever a file of less precedence says.
  std::string place;  ///< "FILE:LINE"
};

/// A file, and what became of it.
struct SettingsFile {
  std::string path;
  bool must_exist = false;  ///< A warning says that it does not.
  bool exists = false;
  std::string why_not{};     ///< Why none of it was read. Empty: it was read, or does not exist.
  std::size_t settings = 0;  ///< Lines with a setting.
};

class SettingsFiles {
 public:
  /// A longer file is not read.
  static constexpr std::size_t kMostBytes = 64 * 1024;
  /// So many lines without effect are named for each file, and the others counted.
  static constexpr std::size_t kMostNamed = 5;

  /// Reads files of which path and must_exist are given, those of less precedence first. Of two lines for one
  /// setting, the later one counts.
  explicit SettingsFiles(std::vector<SettingsFile> files);

  /// What the files say of a setting, for as long as this object lives. nullptr: nothing.
  const FileSetting* find(const Setting& setting) const noexcept;

  const std::vector<SettingsFile>& files() const noexcept { return files_; }

  /// Lines that name what has no effect, and why.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  void read(SettingsFile& file);
  void take_lines(std::string_view text, SettingsFile& file);
  /// Why a line has no effect. Empty: it has one, or is a comment.
  std::string take_line(std::string_view line, const std::string& place, SettingsFile& file);

  std::vector<FileSetting> settings_;
  std::vector<SettingsFile> files_;
  std::vector<std::string> warnings_;
};

/// The files for this process, not read yet: what the environment variable CH3_OFFLOAD_SETTINGS_FILE names,
/// nothing if that is empty; without that variable ch3-offload.conf in the installation's folder of
/// configuration (--sysconfdir), and .ch3-offload.conf in the user's home, if HOME is set.
std::vector<SettingsFile> find_settings_files();

/// The files of this process, which are read when this is first called and stay as they are.
const SettingsFiles& settings_files();

}  // namespace ch3_offload
