#include "model/attention.h"

#include "core/error.h"

namespace slime::model {

Tensor Attention::attend_latent(const LatentLayer&, const LatentInput&, const Tensor&) {
  throw BugError("layers of latent attention are not built where attention has no latent form");
}

}  // namespace slime::model
