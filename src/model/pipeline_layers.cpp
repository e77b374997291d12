#include "model/pipeline_layers.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::model {

std::vector<LayerRange> layers_of_stage(const comm::ParallelLayout& layout, int stage,
                                        int64_t num_layers) {
  const int64_t count = int64_t{layout.pp} * layout.chunks;
  int64_t others = count, rest = num_layers;
  for (const int given : {layout.first_layers, layout.last_layers}) {
    if (given == 0) continue;
    --others;
    rest -= given;
  }
  // Stages that nobody has counted have at least a layer each.
  const bool divides = others > 0 ? rest >= others && rest % others == 0 : rest == 0;
  if (!divides) {
    throw ConfigError(fmt::format(
        "{} layers cannot be cut into {} ranges for {} pipeline stages ({} in the first, {} in the "
        "last; 0: as many as in the others): they do not divide",
        num_layers, count, layout.pp, layout.first_layers, layout.last_layers));
  }
  const int64_t size = others > 0 ? rest / others : 0;
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t layers = size;
    if (i == 0 && layout.first_layers > 0) layers = layout.first_layers;
    if (i + 1 == count && layout.last_layers > 0) layers = layout.last_layers;
    if (i % layout.pp == stage) ranges.push_back({begin, begin + layers});
    begin += layers;
  }
  return ranges;
}

}  // namespace slime::model
