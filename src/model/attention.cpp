#include "model/attention.h"

#include "core/error.h"

namespace slime::model {

Tensor Attention::attend_latent(const LatentLayer&, const LatentInput&, const Tensor&) {
  throw BugError("layers of latent attention are not built where attention has no latent form");
}

Tensor Attention::attend_delta(const DeltaLayer&, const kernels::DeltaTokens&) {
  throw BugError("gated delta nets are not built where attention has no states");
}

}  // namespace slime::model
