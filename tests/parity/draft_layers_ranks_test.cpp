// Draft layers whose heads, experts and vocabulary are divided among ranks compute what one rank computes.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "model/golden_models_for_tests.h"
#include "model/network.h"
#include "model/token_batch_for_tests.h"
#include "model/tree_attention.h"
#include "rank_threads.h"

namespace slime::parity {
namespace {

/// Logits of the drafts behind a sequence, in float64.
Tensor draft_logits(const std::string& name, const comm::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const auto network =
      model::load_network(std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/drafts" / name,
                          model::Precision::of("float64"), mesh, model::DraftLayers::kComputed);
  const model::TokenBatch batch = model::sequence_of({5, 6, 7, 8, 9, 150, 2}),
                          behind = model::sequence_of({6, 7, 8, 9, 150, 2, 1});
  model::TreeAttention attention(batch), attention_of_draft(behind);
  const Tensor hidden_TH = network->forward(batch, attention);
  return network->logits(network->draft(0, hidden_TH, behind, attention_of_draft));
}

class DraftLayersOnRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftLayersOnRanks, AreThoseOfOneRank) {
  const Tensor expected_TV = draft_logits(GetParam(), comm::Mesh::single());
  std::vector<comm::ParallelLayout> layouts{{.tp = 2}, comm::engine_layout(2)};
  if (std::string_view(GetParam()) != "mimo") {
    layouts.push_back({.dp = 2, .ep = 2});
    layouts.push_back({.tp = 2, .ep = 2});
  }
  for (const comm::ParallelLayout& layout : layouts) {
    on_mesh(layout, [&](const comm::Mesh& mesh) {
      const Tensor found_TV = draft_logits(GetParam(), mesh);
      // Sums over ranks are taken in another order.
      EXPECT_LT((found_TV - expected_TV).abs().max().item<double>(), 1e-9)
          << "tp " << layout.tp << ", ep " << layout.ep << ", etp " << layout.etp;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DraftLayersOnRanks,
                         ::testing::Values("deepseek_v3", "glm4_moe", "mimo", "qwen3_next"),
                         golden_models::name_of);

}  // namespace
}  // namespace slime::parity
