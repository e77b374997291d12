#include "engine/http/responses/reasoning_envelope.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

TEST(ReasoningEnvelope, GivesBackWhatWasPackedAndNothingElse) {
  const std::string packed = pack_reasoning("Hm.\n\u00e9");
  EXPECT_EQ(packed, "slime.reasoning.1.SG0uCsOp");
  EXPECT_EQ(unpack_reasoning(packed), "Hm.\n\u00e9");
  EXPECT_EQ(unpack_reasoning(pack_reasoning("")), "");
  EXPECT_FALSE(unpack_reasoning("gAAAAABo"));                   // another server's
  EXPECT_FALSE(unpack_reasoning("slime.reasoning.1.SG0uCsO"));  // cut
  EXPECT_FALSE(unpack_reasoning("slime.reasoning.1./w=="));     // no UTF-8
}

}  // namespace
}  // namespace slime::engine
