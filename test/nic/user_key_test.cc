#include "nic/user_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "nic/introductions_world.h"

namespace ch3_offload {
namespace {

const std::string kBytes = "sixteen bytes or more";

class UserKeyFile : public testing::Test {
  void SetUp() override {
    if (!have_keyed_hash()) GTEST_SKIP() << "this library was built without libsodium";
  }
};

TEST_F(UserKeyFile, ProvesIfItComesFromAFile) {
  const KeyFile file(kBytes), same(kBytes), other(kBytes + "!");
  EXPECT_TRUE(file.key().proves());
  EXPECT_EQ(file.key().provider_secret(), same.key().provider_secret());
  EXPECT_NE(file.key().provider_secret(), other.key().provider_secret());
  EXPECT_TRUE(std::ranges::equal(file.key().bytes(), same.key().bytes()));
  EXPECT_FALSE(std::ranges::equal(file.key().bytes(), other.key().bytes()));
}

TEST(UserKey, OfAUserProvesNothing) {
  EXPECT_FALSE(UserKey::of_user(UserId{5}).proves());
  EXPECT_EQ(UserKey::of_user(UserId{5}).provider_secret(), UserKey::of_user(UserId{5}).provider_secret());
  EXPECT_NE(UserKey::of_user(UserId{5}).provider_secret(), UserKey::of_user(UserId{6}).provider_secret());
}

void expect_refused(const std::string& path, const std::string& why) {
  const Result<UserKey> key = UserKey::read(path);
  ASSERT_FALSE(key.ok()) << path;
  EXPECT_NE(key.error().message.find(why), std::string::npos) << key.error().message;
  EXPECT_NE(key.error().message.find(path), std::string::npos) << key.error().message;
}

TEST_F(UserKeyFile, OfAFileThatOthersReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610}) {
    const KeyFile file(kBytes);
    ASSERT_EQ(::chmod(file.path.c_str(), mode), 0);
    expect_refused(file.path, "chmod 600");
  }
}

TEST_F(UserKeyFile, OfAFileThatIsTooShortOrTooLongIsRefused) {
  expect_refused("/nonexistent", "No such file");
  const KeyFile little(std::string(15, 'x')), most(std::string(4096, 'x')), much(std::string(4097, 'x'));
  expect_refused(little.path, "less than 16");
  expect_refused(much.path, "more than 4096");
  EXPECT_TRUE(most.key().proves());
  EXPECT_TRUE(KeyFile(std::string(16, 'x')).key().proves());
}

TEST_F(UserKeyFile, OfWhatIsNoFileIsRefused) { expect_refused(testing::TempDir(), "is no regular file"); }

}  // namespace
}  // namespace ch3_offload
