#include "kernels/gpu/latent_pairs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

/// The additions to what an expanding product makes are those of a product with the pair merged into it.
TEST(LatentPairs, AddWhatTheMergedProductWould) {
  at::manual_seed(3);
  constexpr int64_t kTokens = 5, kHeads = 3, kPlain = 4, kValue = 6, kLatent = 8, kRotary = 2,
                    kRank = 2;
  const auto numbers = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const Tensor a_RL = numbers({kRank, kLatent}), b_NER = numbers({kHeads, kPlain + kValue, kRank});
  const std::vector<LatentPair> pairs{{a_RL, b_NER, 0.7}, {2 * a_RL, b_NER, 0.1}};
  const Tensor merged_NEL = (0.7 + 0.2) * at::matmul(b_NER, a_RL);
  const Tensor keys_NPL = merged_NEL.narrow(1, 0, kPlain),
               values_NVL = merged_NEL.narrow(1, kPlain, kValue);

  const Tensor query_TNP = numbers({kTokens, kHeads, kPlain}),
               q_TNE = numbers({kTokens, kHeads, kRotary + kLatent});
  const Tensor expected_TNE = q_TNE.clone();
  expected_TNE.narrow(2, kRotary, kLatent).add_(at::einsum("tnp,npl->tnl", {query_TNP, keys_NPL}));
  add_latent_queries_(pairs, query_TNP, q_TNE);
  EXPECT_TRUE(at::allclose(q_TNE, expected_TNE));

  const Tensor seen_TNL = numbers({kTokens, kHeads, kLatent}),
               y_TC = numbers({kTokens, kHeads * kValue});
  const Tensor expected_TC =
      y_TC + at::einsum("tnl,nvl->tnv", {seen_TNL, values_NVL}).reshape({kTokens, kHeads * kValue});
  add_latent_values_(pairs, seen_TNL, y_TC);
  EXPECT_TRUE(at::allclose(y_TC, expected_TC));

  const Tensor latent_CL = numbers({kTokens, kLatent}),
               expanded_CNE = numbers({kTokens, kHeads, kPlain + kValue});
  const Tensor expected_CNE = expanded_CNE + at::einsum("cl,nel->cne", {latent_CL, merged_NEL});
  add_expanded_latents_(pairs, latent_CL, expanded_CNE);
  EXPECT_TRUE(at::allclose(expanded_CNE, expected_CNE));
}

}  // namespace
}  // namespace slime::kernels
