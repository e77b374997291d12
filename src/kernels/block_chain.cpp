#include "kernels/block_chain.h"

#include "kernels/adapters.h"
#include "kernels/device.h"

namespace slime::kernels {

Tensor unfused_block_chain(const BlockChain& chain) {
  const Device& device = kernels_for(chain.residual_TH);
  const auto summed = [&](const Tensor& partial_TH) {
    if (chain.ranks != nullptr) chain.ranks->sum_(partial_TH);
    return partial_TH;
  };
  const Tensor output_TH =
      summed(adapted_linear(chain.attended_TC, chain.output_HC, chain.output_bias_H));
  const Tensor input_TH =
      device.add_rms_norm_(chain.residual_TH, output_TH, chain.post_norm_H, chain.eps);
  const Tensor gated_TF = adapted_gated_linear(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  const Tensor update_TH = summed(adapted_linear(gated_TF, chain.down_HF, chain.down_bias_H));
  if (!chain.next_norm_H.defined()) return update_TH;
  const Tensor next_TH =
      device.add_rms_norm_(chain.residual_TH, update_TH, chain.next_norm_H, chain.eps);
  return adapted_linear(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E);
}

Tensor block_chain(const BlockChains* chains, const BlockChain& chain) {
  return chains != nullptr && chains->has_block_chain(chain) ? chains->block_chain(chain)
                                                             : unfused_block_chain(chain);
}

const BlockChains* block_chains_for(const Tensor& tensor) {
  return dynamic_cast<const BlockChains*>(&kernels_for(tensor));
}

}  // namespace slime::kernels
