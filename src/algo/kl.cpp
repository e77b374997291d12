#include "algo/kl.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace slime::algo {
namespace {

Tensor plain_estimate(KlType type, const Tensor& difference) {
  switch (type) {
    case KlType::kK1:
      return difference;
    case KlType::kK2:
      return difference.square() / 2;
    case KlType::kK3:
    case KlType::kLowVar:
      return (-difference).exp() - 1 + difference;
  }
  throw BugError("a KlType outside its enumeration");
}

}  // namespace

KlType kl_type_from_string(const std::string& word) {
  if (word == "k1") return KlType::kK1;
  if (word == "k2") return KlType::kK2;
  if (word == "k3") return KlType::kK3;
  if (word == "low_var_kl") return KlType::kLowVar;
  throw ConfigError("kl-loss-type: \"" + word + "\" is not one of k1, k2, k3, low_var_kl");
}

Tensor kl_estimate(KlType type, const Tensor& logprob, const Tensor& base,
                   const Tensor& importance) {
  Tensor estimate = plain_estimate(type, logprob - base);
  if (importance.defined()) estimate = importance * estimate;
  return type == KlType::kLowVar ? estimate.clamp(-10, 10) : estimate;
}

}  // namespace slime::algo
