#include <array>

#include "model/decoder.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr std::array kFamilies = {
    Family{"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2, write_deepseek_v2,
           make_latent_decoder},
    Family{"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3, write_deepseek_v3,
           make_latent_decoder},
    Family{"deepseek_v32", "DeepseekV32ForCausalLM", read_deepseek_v32, write_deepseek_v32,
           make_latent_decoder},
    Family{"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2, make_dense_decoder},
    Family{"gemma3_text", "Gemma3ForCausalLM", read_gemma3_text, write_gemma3_text,
           make_dense_decoder},
    Family{"glm4", "Glm4ForCausalLM", read_glm4, write_glm4, make_dense_decoder},
    Family{"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe, make_expert_decoder},
    Family{"glm4_moe_lite", "Glm4MoeLiteForCausalLM", read_glm4_moe_lite, write_glm4_moe_lite,
           make_latent_decoder},
    Family{"glm_moe_dsa", "GlmMoeDsaForCausalLM", read_glm_moe_dsa, write_glm_moe_dsa,
           make_latent_decoder},
    Family{"gpt_oss", "GptOssForCausalLM", read_gpt_oss, write_gpt_oss, make_expert_decoder},
    Family{"kimi_k2", "DeepseekV3ForCausalLM", read_deepseek_v3, write_deepseek_v3,
           make_latent_decoder},
    Family{"llama", "LlamaForCausalLM", read_llama, write_llama, make_dense_decoder},
    Family{"mimo", "MiMoForCausalLM", read_mimo, write_mimo, make_dense_decoder},
    Family{"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, write_minimax_m2,
           make_expert_decoder},
    Family{"mistral", "MistralForCausalLM", read_mistral, write_mistral, make_dense_decoder},
    Family{"olmo2", "Olmo2ForCausalLM", read_olmo2, write_olmo2, make_dense_decoder},
    Family{"phi3", "Phi3ForCausalLM", read_phi3, write_phi3, make_dense_decoder},
    Family{"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2, make_dense_decoder},
    Family{"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe, write_qwen2_moe,
           make_expert_decoder},
    Family{"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3, make_dense_decoder},
    Family{"qwen3_5", "Qwen3_5ForConditionalGeneration", read_qwen3_5, write_qwen3_5,
           make_delta_decoder},
    Family{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", read_qwen3_5_moe, write_qwen3_5_moe,
           make_delta_decoder},
    Family{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_qwen3_5_moe, write_qwen3_5_moe,
           make_delta_decoder},
    Family{"qwen3_5_text", "Qwen3_5ForCausalLM", read_qwen3_5, write_qwen3_5, make_delta_decoder},
    Family{"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe,
           make_expert_decoder},
    Family{"qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, write_qwen3_next,
           make_delta_decoder},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

}  // namespace slime::model
