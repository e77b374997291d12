// Every portable kernel as C++, run by the block executor, against a twin of the CPU; and mistakes that the comparison must find.
#define SLIME_KERNELS_ON_CPU

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "kernels/cuda/vendor/kernel_cases_for_tests.h"

namespace slime::kernels::cuda {
namespace {

std::vector<KernelCase> all_cases() {
  std::vector<KernelCase> all;
  for (const auto& cases :
       {attention_cases(), decode_cases(), delta_cases(), expert_cases(), fp8_cases(),
        latent_cases(), product_cases(), sparse_cases(), training_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

class KernelCases : public testing::TestWithParam<KernelCase> {};

INSTANTIATE_TEST_SUITE_P(OnCpu, KernelCases, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.what; });

TEST_P(KernelCases, AreAsTheirTwins) {
  at::manual_seed(7);
  for (const BlockExecutor::Options options :
       {BlockExecutor::Options{32, false}, BlockExecutor::Options{64, true}}) {
    BlockExecutor executor(options);
    EXPECT_LE(GetParam().error(executor), 1) << options.wave_lanes;
  }
}

TEST_P(KernelCases, FindWhatIsPlanted) {
  at::manual_seed(8);
  ASSERT_FALSE(GetParam().mistakes.empty());
  for (const BlockExecutor::Options& options : GetParam().mistakes) {
    BlockExecutor executor(options);
    EXPECT_GT(GetParam().error(executor), 1)
        << "distance " << options.mistaken_distance << ", lane " << options.mistaken_lane
        << ", passes barriers " << options.passes_barriers << ", absent " << options.absent_thread;
  }
}

TEST(KernelCasesOfAll, NoPortableFileIsForgotten) {
  // These have tests of their own: kernels_on_cpu_test.cpp, products/low_rank_test.cpp.
  std::set<std::string> covered{"products/low_rank",      "products/low_rank_down_many",
                                "products/low_rank_many", "rows/rows",
                                "sampling/sample",        "sampling/sample_truncated",
                                "training/adamw",         "training/softmax"};
  for (const KernelCase& one : all_cases()) covered.insert(one.file);
  std::ifstream file(std::string(SLIME_SOURCE_DIR) + "/cmake/portable_kernels.cmake");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::smatch list;
  ASSERT_TRUE(std::regex_search(text, list, std::regex("set\\(slime_portable_kernels([^)]*)\\)")));
  std::set<std::string> portable;
  const std::string names = list[1];
  const std::regex name("[a-z0-9_/]+");
  for (std::sregex_iterator i(names.begin(), names.end(), name), end; i != end; ++i)
    portable.insert(i->str());
  EXPECT_EQ(covered, portable);
}

}  // namespace
}  // namespace slime::kernels::cuda
