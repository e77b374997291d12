#include "cluster/local_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "core/error.h"

namespace slime::cluster {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class LocalSocketTest : public testing::Test {
 protected:
  LocalSocketTest() : folder_(fs::temp_directory_path() / ("sock" + std::to_string(::getpid()))) {
    make_private_folder(folder_);
  }
  ~LocalSocketTest() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(LocalSocketTest, AConnectionOfThisUserIsAccepted) {
  LocalListener listener(folder_ / "a.sock");
  const std::optional<int> near = connect_locally(folder_ / "a.sock");
  ASSERT_TRUE(near);
  const std::optional<int> far = listener.accept_within(milliseconds(5000));
  ASSERT_TRUE(far);
  EXPECT_EQ(::write(*near, "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(*far, &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  ::close(*near);
  ::close(*far);
}

TEST_F(LocalSocketTest, NobodyWhoComesInTimeIsNothing) {
  LocalListener listener(folder_ / "a.sock");
  EXPECT_FALSE(listener.accept_within(milliseconds(20)));
}

TEST_F(LocalSocketTest, AFileThatNobodyListensAtIsReplacedAndOneInUseIsNot) {
  EXPECT_FALSE(connect_locally(folder_ / "a.sock"));
  { const LocalListener gone(folder_ / "a.sock"); }
  const LocalListener listener(folder_ / "a.sock");
  EXPECT_THROW(LocalListener(folder_ / "a.sock"), ConfigError);
  const std::optional<int> still = connect_locally(folder_ / "a.sock");
  EXPECT_TRUE(still);
  if (still) ::close(*still);
}

TEST_F(LocalSocketTest, AFolderThatOthersMayReadIsRefused) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_THROW(make_private_folder(folder_), ConfigError);
}

TEST_F(LocalSocketTest, ANameThatIsTooLongIsRefused) {
  EXPECT_THROW(LocalListener(folder_ / std::string(200, 'n')), ConfigError);
}

}  // namespace
}  // namespace slime::cluster
