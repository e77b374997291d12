#include "estimate/hand_over.h"

#include "estimate/stages.h"

namespace slime::estimate {

Collective hand_over(const ModelShape& shape, const comm::ParallelLayout& layout,
                     const Engines& engines, const Rates& rates) {
  Collective one{.name = "new weights", .axis = "engines", .ranks = engines.devices, .calls = 1};
  const bool is_alike =
      layout.tp == engines.per_engine && layout.pp == 1 && layout.ep * layout.etp == 1;
  if (!engines.are_apart && is_alike) return one;
  one.crosses_hosts = engines.cross_hosts;
  double drafted = 0;  // weights of drafts that are trained
  for (const DraftShape& draft : shape.drafts)
    if (draft.are_trained) drafted += static_cast<double>(draft.parameters);
  // Adapters travel in float32, and whole.
  const double slices = shape.trains_adapters
                            ? 4 * static_cast<double>(shape.adapters())
                            : (engine_weight_bytes(shape) + kElementBytes * drafted) /
                                  static_cast<double>(engines.per_engine);
  one.bytes = slices;
  one.seconds = slices / (one.crosses_hosts ? rates.network : rates.link).per_second;
  return one;
}

}  // namespace slime::estimate
