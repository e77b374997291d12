#include "rollout/older_tokens.h"

#include <gtest/gtest.h>

#include "core/version_runs.h"

namespace slime::rollout {
namespace {

Sample sample_of(std::vector<VersionRun> versions) {
  Sample sample;
  sample.versions = std::move(versions);
  sample.tokens.resize(static_cast<std::size_t>(num_tokens(sample.versions)));
  return sample;
}

TEST(OlderTokens, AreMaskedByTheVersionThatDrewThem) {
  Group group;
  group.samples = {sample_of({{3, 2}, {4, 1}}), sample_of({{4, 2}}), sample_of({{2, 1}})};
  EXPECT_EQ(newest_version(group), 4);
  mask_tokens_before(group, 4);
  EXPECT_EQ(group.samples[0].loss_mask, (std::vector<uint8_t>{0, 0, 1}));
  EXPECT_TRUE(group.samples[1].loss_mask.empty());
  EXPECT_EQ(group.samples[2].loss_mask, (std::vector<uint8_t>{0}));
}

TEST(OlderTokens, AMaskThatIsThereStays) {
  Group group;
  group.samples = {sample_of({{1, 1}, {kNoVersion, 1}, {2, 2}})};
  group.samples[0].loss_mask = {1, 0, 1, 0};
  mask_tokens_before(group, 2);
  EXPECT_EQ(group.samples[0].loss_mask, (std::vector<uint8_t>{0, 0, 1, 0}));
}

}  // namespace
}  // namespace slime::rollout
