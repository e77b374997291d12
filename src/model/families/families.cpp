#include <array>

#include "model/decoder.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr std::array kFamilies = {
    Family{"llama", read_llama, make_dense_decoder},
    Family{"mistral", read_mistral, make_dense_decoder},
    Family{"olmo2", read_olmo2, make_dense_decoder},
    Family{"phi3", read_phi3, make_dense_decoder},
    Family{"qwen2", read_qwen2, make_dense_decoder},
    Family{"qwen3", read_qwen3, make_dense_decoder},
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
