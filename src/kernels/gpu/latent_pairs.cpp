#include "kernels/gpu/latent_pairs.h"

#include <ATen/ATen.h>

namespace slime::kernels {

void add_latent_queries_(std::span<const LatentPair> pairs, const Tensor& plain_query_TNP,
                         const Tensor& q_TNE) {
  for (const LatentPair& pair : pairs) {
    const Tensor query_NTP = plain_query_TNP.transpose(0, 1).to(pair.a_RL.scalar_type());
    const Tensor keys_NPR = pair.b_NER.narrow(1, 0, query_NTP.size(2));
    const Tensor addition_NTL = at::matmul(at::bmm(query_NTP, keys_NPR), pair.a_RL) * pair.scale;
    const int64_t rank = pair.a_RL.size(1);
    q_TNE.narrow(2, q_TNE.size(2) - rank, rank)
        .add_(addition_NTL.transpose(0, 1).to(q_TNE.scalar_type()));
  }
}

void add_latent_values_(std::span<const LatentPair> pairs, const Tensor& seen_TNL,
                        const Tensor& y_TC) {
  const Tensor y_TNV = y_TC.view({y_TC.size(0), seen_TNL.size(1), -1});
  for (const LatentPair& pair : pairs) {
    const int64_t value = y_TNV.size(2);
    const Tensor values_NVR = pair.b_NER.narrow(1, pair.b_NER.size(1) - value, value);
    const Tensor h_TNR = at::matmul(seen_TNL.to(pair.a_RL.scalar_type()), pair.a_RL.t());
    const Tensor addition_NTV =
        at::bmm(h_TNR.transpose(0, 1), values_NVR.transpose(1, 2)) * pair.scale;
    y_TNV.add_(addition_NTV.transpose(0, 1).to(y_TNV.scalar_type()));
  }
}

void add_expanded_latents_(std::span<const LatentPair> pairs, const Tensor& latent_CL,
                           const Tensor& expanded_CNE) {
  for (const LatentPair& pair : pairs) {
    const Tensor h_CR = at::matmul(latent_CL.to(pair.a_RL.scalar_type()), pair.a_RL.t());
    const Tensor b_ER = pair.b_NER.reshape({-1, pair.b_NER.size(2)});
    const Tensor addition_CE = at::matmul(h_CR, b_ER.t()) * pair.scale;
    expanded_CNE.add_(addition_CE.view(expanded_CNE.sizes()).to(expanded_CNE.scalar_type()));
  }
}

}  // namespace slime::kernels
