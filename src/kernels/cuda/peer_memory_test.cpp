/// Memory of one GPU, written to by a process that has another one. The other process is this program
/// once more, in the disabled test below.

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/gpu/for_tests.h"
#include "kernels/gpu/locked_pages.h"

extern char** environ;

namespace slime::kernels {
namespace {

constexpr const char* kDescriptorVariable = "SLIME_TEST_PEER_DESCRIPTOR";
constexpr int kDescriptor = 9;
constexpr int64_t kNumbers = int64_t{1} << 24;
constexpr std::size_t kHandleBytes = 80;

/// What is written for a letter.
Tensor numbers_of(char letter, at::Device device) {
  return at::arange(kNumbers, at::TensorOptions(at::kFloat).device(device))
      .remainder_(1000)
      .mul_(static_cast<double>(letter));
}

void send_all(int descriptor, const std::string& bytes) {
  ASSERT_EQ(::write(descriptor, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

/// A process with the last visible GPU, which exports memory and is asked what is in it.
class Owner {
 public:
  Owner() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends_[1], kDescriptor);
    std::string variable = std::string(kDescriptorVariable) + "=1";
    std::string device = "CUDA_VISIBLE_DEVICES=" + std::to_string(count_gpus() - 1);
    std::vector<char*> variables{variable.data(), device.data()};
    for (char** old = environ; *old != nullptr; ++old) {
      // Another shard's test it would leave out.
      if (!std::string_view(*old).starts_with("GTEST_")) variables.push_back(*old);
    }
    variables.push_back(nullptr);
    std::array<std::string, 3> words{"slime_tests",
                                     "--gtest_filter=GpuPeerMemory.DISABLED_TheOtherProcess",
                                     "--gtest_also_run_disabled_tests"};
    std::array<char*, 4> argv{words[0].data(), words[1].data(), words[2].data(), nullptr};
    EXPECT_EQ(::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, argv.data(),
                            variables.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends_[1]);
    handle_.resize(kHandleBytes);
    EXPECT_EQ(::recv(ends_[0], handle_.data(), handle_.size(), MSG_WAITALL),
              static_cast<ssize_t>(kHandleBytes));
  }
  ~Owner() {
    ::close(ends_[0]);
    if (process_ > 0) ::waitpid(process_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  const std::string& handle() const { return handle_; }
  /// Whether the memory holds numbers_of(letter).
  bool has(char letter) {
    send_all(ends_[0], std::string(1, letter));
    char answer = 0;
    EXPECT_EQ(::recv(ends_[0], &answer, 1, MSG_WAITALL), 1);
    return answer == 'y';
  }
  void kill() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  pid_t process_ = -1;
  std::string handle_;
};

TEST(GpuPeerMemory, DISABLED_TheOtherProcess) {
  if (std::getenv(kDescriptorVariable) == nullptr) GTEST_SKIP() << "nobody asks";
  Tensor before, numbers;  // the second is not at the beginning of its memory, if it is small
  open_gpu().make_exportable([&] {
    before = at::zeros({1000}, at::kCUDA);
    numbers = at::zeros({kNumbers}, at::kCUDA);
  });
  send_all(kDescriptor, open_gpu().export_memory(numbers));
  for (char letter = 0; ::recv(kDescriptor, &letter, 1, 0) == 1;)
    send_all(kDescriptor, numbers.equal(numbers_of(letter, at::kCUDA)) ? "y" : "n");
}

#define NEEDS_TWO_GPUS() \
  SLIME_NEEDS_GPU();     \
  if (count_gpus() < 2) GTEST_SKIP() << "one GPU"

TEST(GpuPeerMemory, WhatIsWrittenIsInTheOtherProcesssMemory) {
  NEEDS_TWO_GPUS();
  Owner owner;
  const auto peer = open_gpu().open_peer_memory(owner.handle());
  EXPECT_EQ(peer->size_bytes(), kNumbers * 4);
  EXPECT_FALSE(owner.has('a'));
  for (const char letter : {'a', 'b'}) {
    EXPECT_GT(peer->write(numbers_of(letter, at::kCUDA)), 0);
    EXPECT_TRUE(owner.has(letter));
  }
  const Tensor host = numbers_of('c', at::kCPU);
  const LockedPages locked(host);
  peer->write(host);
  EXPECT_TRUE(owner.has('c'));
}

TEST(GpuPeerMemory, BytesThatAreNoHandleAreRefusedAndNothingIsLost) {
  SLIME_NEEDS_GPU();
  EXPECT_THROW(open_gpu().open_peer_memory("four"), std::runtime_error);
  EXPECT_THROW(open_gpu().open_peer_memory(std::string(kHandleBytes, '\1')), std::runtime_error);
  EXPECT_EQ(at::ones({1000}, at::kCUDA).sum().item<float>(), 1000);
}

/// Its memory stays until it is closed here, and this process's GPU goes on.
TEST(GpuPeerMemory, TheDeathOfItsOwnerHarmsNobody) {
  NEEDS_TWO_GPUS();
  for (int round = 0; round < 2; ++round) {
    Owner owner;
    auto peer = open_gpu().open_peer_memory(owner.handle());
    peer->write(numbers_of('a', at::kCUDA));
    owner.kill();
    try {
      peer->write(numbers_of('b', at::kCUDA));
    } catch (const std::runtime_error& error) {
      GTEST_LOG_(INFO) << error.what();
    }
    peer.reset();
    EXPECT_EQ(at::ones({1000}, at::kCUDA).sum().item<float>(), 1000);
  }
}

TEST(GpuPeerMemory, OnlyWhatIsMadeForItCanBeExported) {
  SLIME_NEEDS_GPU();
  Tensor exportable;
  open_gpu().make_exportable([&] { exportable = at::zeros({1 << 24}, at::kCUDA); });
  EXPECT_EQ(open_gpu().export_memory(exportable).size(), kHandleBytes);
  const Tensor other = at::zeros({1 << 24}, at::kCUDA);
  EXPECT_THROW(open_gpu().export_memory(other), std::runtime_error);
}

}  // namespace
}  // namespace slime::kernels
