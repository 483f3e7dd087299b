#include "ch3_offload/settings_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "ch3_offload/environment.h"
#include "ch3_offload/setting_names.h"

namespace ch3_offload {
namespace {

const Setting& setting_of(std::string_view name) { return *find_setting("MPIR_CVAR_" + std::string(name)); }

class SettingsFilesTest : public testing::Test {
 protected:
  ~SettingsFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  SettingsFile write(const std::string& name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return {.path = path(name)};
  }

  /// What one file with this text sets for the setting; "-": nothing.
  std::string text_of(std::string_view setting, std::string_view text) const {
    const SettingsFiles files({write("one", text)});
    const FileSetting* const found = files.find(setting_of(setting));
    return found == nullptr ? "-" : found->text;
  }

  std::vector<std::string> warnings_of(std::string_view text) const {
    return SettingsFiles({write("one", text)}).warnings();
  }

 private:
  const std::string folder_ = [] {
    std::string name = testing::TempDir() + "ch3-settings-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }();
};

TEST_F(SettingsFilesTest, ALineIsACommentOrEmptyOrASetting) {
  const SettingsFiles files({write("one",
                                   "# MPIR_CVAR_CH3_OFFLOAD_NIC = process\n"
                                   "\n"
                                   "  \t# another\n"
                                   "MPIR_CVAR_CH3_OFFLOAD_FABRIC = tcp\r\n"
                                   "\tMPICH_CH3_OFFLOAD_SPIN=50\n"
                                   "MPIR_CVAR_CH3_PORT_RANGE\t=\t20000:20999\n"
                                   "MPIR_CVAR_CH3_OFFLOAD_TRACE = /tmp/a = b # c")});
  EXPECT_TRUE(files.warnings().empty());
  EXPECT_EQ(files.files().at(0).settings, 4u);
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_NIC")), nullptr);
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_FABRIC"))->text, "tcp");
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_FABRIC"))->place, path("one") + ":4");
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_SPIN"))->text, "50");
  EXPECT_EQ(files.find(setting_of("CH3_PORT_RANGE"))->text, "20000:20999");
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_TRACE"))->text, "/tmp/a = b # c");
}

TEST_F(SettingsFilesTest, ALaterFileAndALaterLineTakePrecedence) {
  const SettingsFiles files(
      {write("all", "MPIR_CVAR_CH3_OFFLOAD_SPIN = 1\nMPIR_CVAR_CH3_OFFLOAD_NIC = thread\n"),
       write("own",
             "MPIR_CVAR_CH3_OFFLOAD_SPIN = 2\n"
             "MPIR_CVAR_CH3_OFFLOAD_SPIN = 3\n"
             "MPIR_CVAR_CH3_OFFLOAD_NIC =\n")});
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_SPIN"))->text, "3");
  EXPECT_EQ(files.find(setting_of("CH3_OFFLOAD_SPIN"))->place, path("own") + ":2");
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(read_setting(setting_of("CH3_OFFLOAD_NIC"), files, config).value, "host");
}

TEST_F(SettingsFilesTest, TheEnvironmentTakesPrecedenceAndItsEmptyValueIsTheDefault) {
  const SettingsFiles files(
      {write("one", "MPIR_CVAR_CH3_OFFLOAD_SPIN = 1\nMPIR_CVAR_CH3_OFFLOAD_NIC = thread\n")});
  setenv("MPICH_CH3_OFFLOAD_SPIN", "2", 1);
  setenv("MPIR_CVAR_CH3_OFFLOAD_NIC", "", 1);
  const Environment environment = read_environment(files);
  unsetenv("MPICH_CH3_OFFLOAD_SPIN");
  unsetenv("MPIR_CVAR_CH3_OFFLOAD_NIC");
  EXPECT_EQ(environment.config.spin_us, 2);
  EXPECT_STREQ(environment.config.nic, "host");
  EXPECT_EQ(read_environment(files).config.spin_us, 1);
  EXPECT_STREQ(read_environment(files).config.nic, "thread");
}

TEST_F(SettingsFilesTest, AWrongValueIsNamedWithItsPlace) {
  const SettingsFiles files({write("one", "\nMPICH_CH3_OFFLOAD_EAGER_LIMIT = 4294967297\n")});
  const Environment environment = read_environment(files);
  EXPECT_FALSE(environment.valid());
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(read_setting(setting_of("CH3_OFFLOAD_EAGER_LIMIT"), files, config).complaint,
            path("one") +
                ":2: MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT=4294967297 is out of range: it takes bytes from 0 "
                "to 16M; K and M may follow");
  EXPECT_EQ(config.eager_limit_bytes, 64 * 1024);
}

TEST_F(SettingsFilesTest, WhatIsNoSettingHasNoEffectAndIsNamed) {
  const struct {
    const char* line;
    const char* why;
  } cases[] = {
      {"MPIR_CVAR_CH3_OFFLOAD_SPINN = 1",
       "there is no setting \"MPIR_CVAR_CH3_OFFLOAD_SPINN\": did you mean MPIR_CVAR_CH3_OFFLOAD_SPIN?"},
      {"CH3_OFFLOAD_FABRIC = tcp",
       "there is no setting \"CH3_OFFLOAD_FABRIC\": did you mean MPIR_CVAR_CH3_OFFLOAD_FABRIC?"},
      {"eager = 64K", "there is no setting \"eager\": ch3-offload-info lists all"},
      {"EAGER_LIMIT = 64K",
       "there is no setting \"EAGER_LIMIT\": did you mean MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT?"},
      {"MPIR_CVAR_BARRIER_INTRA_ALGORITHM = auto",
       "there is no setting \"MPIR_CVAR_BARRIER_INTRA_ALGORITHM\" of ch3:offload: MPICH reads its own from "
       "the "
       "environment only"},
      {"export X", "no \"=\" is in this line; it takes NAME = VALUE, or # and a comment"},
      {"=", "there is no setting \"\": ch3-offload-info lists all"},
      {"MPIR_CVAR_CH3_OFFLOAD_SPIN = \x1b[2J", "a line with control characters has no effect"},
  };
  for (const auto& one : cases) {
    const auto warnings = warnings_of(std::string("# the first line\n") + one.line + "\n");
    ASSERT_EQ(warnings.size(), 1u) << one.line;
    EXPECT_EQ(warnings[0], path("one") + ":2: " + one.why);
  }
  using namespace std::string_view_literals;
  EXPECT_EQ(text_of("CH3_OFFLOAD_SPIN", "MPIR_CVAR_CH3_OFFLOAD_SPIN = 5\0 0\n"sv), "-");
}

TEST_F(SettingsFilesTest, ManyLinesWithoutEffectAreCounted) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "nonsense\n";
  const auto warnings = warnings_of(text + "MPIR_CVAR_CH3_OFFLOAD_SPIN = 7");
  ASSERT_EQ(warnings.size(), SettingsFiles::kMostNamed + 1);
  EXPECT_EQ(warnings.back(), path("one") + ": 95 further lines have no effect");
}

TEST_F(SettingsFilesTest, AFileThatCannotBeTrustedOrReadIsNotUsed) {
  const std::string line = "MPIR_CVAR_CH3_OFFLOAD_SPIN = 1\n";
  std::vector<SettingsFile> files{
      write("open-to-all", line), write("long", std::string(65537, '#')),        {.path = path("folder")},
      {.path = path("pipe")},     {.path = path("missing"), .must_exist = true}, {.path = path("absent")}};
  chmod(path("open-to-all").c_str(), 0666);
  std::filesystem::create_directory(path("folder"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const SettingsFiles read(files);
  EXPECT_EQ(read.find(setting_of("CH3_OFFLOAD_SPIN")), nullptr);
  const std::vector<std::string> expected{
      path("open-to-all") +
          ": its settings are not used: anybody may write to it (chmod o-w makes that right)",
      path("long") + ": its settings are not used: it is longer than 64 KiB",
      path("folder") + ": its settings are not used: it is no regular file",
      path("pipe") + ": its settings are not used: it is no regular file",
      path("missing") + ": its settings are not used: No such file or directory"};
  EXPECT_EQ(read.warnings(), expected);
  EXPECT_FALSE(read.files().back().exists);
}

TEST_F(SettingsFilesTest, ALengthOfExactlyTheMostIsRead) {
  std::string text(SettingsFiles::kMostBytes, '#');
  constexpr std::string_view kLine = "\nMPIR_CVAR_CH3_OFFLOAD_SPIN = 9";
  text.replace(text.size() - kLine.size(), kLine.size(), kLine);
  EXPECT_EQ(text_of("CH3_OFFLOAD_SPIN", text), "9");
}

TEST_F(SettingsFilesTest, TheEnvironmentSaysWhichFilesThereAre) {
  const char* const old = getenv("CH3_OFFLOAD_SETTINGS_FILE");
  const std::string kept = old == nullptr ? "" : old;
  setenv("CH3_OFFLOAD_SETTINGS_FILE", "", 1);
  EXPECT_TRUE(find_settings_files().empty());
  setenv("CH3_OFFLOAD_SETTINGS_FILE", "/some/file", 1);
  ASSERT_EQ(find_settings_files().size(), 1u);
  EXPECT_EQ(find_settings_files()[0].path, "/some/file");
  EXPECT_TRUE(find_settings_files()[0].must_exist);
  unsetenv("CH3_OFFLOAD_SETTINGS_FILE");
  const std::string home = getenv("HOME") == nullptr ? "" : getenv("HOME");
  setenv("HOME", "/home/of-somebody", 1);
  ASSERT_EQ(find_settings_files().size(), 2u);
  EXPECT_TRUE(find_settings_files()[0].path.ends_with("/ch3-offload.conf"));
  EXPECT_EQ(find_settings_files()[1].path, "/home/of-somebody/.ch3-offload.conf");
  unsetenv("HOME");
  EXPECT_EQ(find_settings_files().size(), 1u);
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  if (old != nullptr) setenv("CH3_OFFLOAD_SETTINGS_FILE", kept.c_str(), 1);
}

}  // namespace
}  // namespace ch3_offload
