#pragma once

/// Ranks of a test on several GPUs. This process is rank 0; each other rank is a process that runs the
/// same test of the same binary, sees one device, and ends where its part of the test does.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/visible_devices.h"
#include "comm/nccl_mesh.h"
#include "kernels/gpu/for_tests.h"

extern char** environ;

namespace slime::parity {

/// What a process of another rank finds in its environment: "RANK PORT CALL".
struct OtherRank {
  int rank = 0;
  int port = 0;
  int call = 0;  // of on_gpus() in the test
};
inline constexpr const char* kOtherRank = "SLIME_TEST_RANK";

inline const OtherRank* other_rank() {
  static OtherRank own;
  static const bool is_one = [] {
    const char* text = std::getenv(kOtherRank);
    return text != nullptr && std::sscanf(text, "%d %d %d", &own.rank, &own.port, &own.call) == 3;
  }();
  return is_one ? &own : nullptr;
}

inline pid_t start_rank(const OtherRank& other) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> words{
      "/proc/self/exe", fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name())};
  std::vector<std::string> variables{
      fmt::format("{}={} {} {}", kOtherRank, other.rank, other.port, other.call),
      fmt::format("{}={}", cluster::kVisibleDevices, cluster::visible_device(other.rank))};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    // Another shard's test it would leave out.
    const bool is_of_parent =
        text.starts_with(cluster::kVisibleDevices) || text.starts_with("GTEST_");
    if (!is_of_parent) variables.emplace_back(text);
  }
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  pid_t process = -1;
  if (::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers(words).data(),
                    pointers(variables).data()) != 0)
    throw std::runtime_error("a rank of the test cannot be started");
  return process;
}

/// Calls body(mesh) in the process of each rank; a failure in one of them is one of the test.
/// `leaves_together`: false where ranks are not to meet at the end. `wrap`: of make_nccl_mesh().
inline void on_gpus(const comm::ParallelLayout& layout,
                    const std::function<void(const comm::Mesh&)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(60),
                    bool leaves_together = true, const comm::WrapGroup& wrap = {}) {
  // Of this test: a rank's process runs no other one.
  static int num_calls = 0;
  static const ::testing::TestInfo* counted = nullptr;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(counted, test) != test) num_calls = 0;
  const int call = num_calls++;
  if (layout.world_size() == 1) {
    if (other_rank() == nullptr) body(comm::Mesh::single());
    return;
  }
  const auto connect_and_run = [&](int rank, int port, comm::Rendezvous* rendezvous) {
    const auto mesh = comm::make_nccl_mesh({.rank = rank,
                                            .layout = layout,
                                            .port = port,
                                            .connect_timeout = std::chrono::seconds(60),
                                            .timeout = timeout},
                                           rendezvous, wrap);
    body(*mesh);
    if (leaves_together) mesh->world().barrier("leaving together");
  };
  if (const OtherRank* own = other_rank()) {
    if (own->call != call) return;
    bool failed = false;
    try {
      connect_and_run(own->rank, own->port, nullptr);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", own->rank, error.what());
      failed = true;
    }
    std::fflush(nullptr);
    std::_Exit(failed || ::testing::Test::HasFailure() ? 1 : 0);
  }
  comm::Rendezvous rendezvous;
  const int port = rendezvous.port();
  std::vector<pid_t> processes;
  for (int rank = 1; rank < layout.world_size(); ++rank)
    processes.push_back(start_rank({rank, port, call}));
  std::exception_ptr error;
  try {
    connect_and_run(0, port, &rendezvous);
  } catch (...) {
    error = std::current_exception();
  }
  for (const pid_t process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(status, 0) << "a rank in a process of its own failed";
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace slime::parity

#define SLIME_NEEDS_GPUS(count)                                                         \
  SLIME_NEEDS_GPU();                                                                    \
  if (slime::parity::other_rank() == nullptr && slime::kernels::count_gpus() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " GPUs"
