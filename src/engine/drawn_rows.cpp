#include "engine/drawn_rows.h"

#include <algorithm>

#include "kernels/gpu/recorded_rows.h"

namespace slime::engine {

std::vector<DrawnRow> drawn_rows(std::span<const Chunk> chunks) {
  std::vector<DrawnRow> drawn;
  int64_t end = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    end += chunk.num_tokens;
    if (!draws_token(chunk)) continue;
    const auto next = static_cast<int64_t>(chunk.request->tokens.size());
    for (int64_t draw = 0; draw <= chunk.num_drafts; ++draw) {
      const int64_t behind = chunk.num_drafts - draw;  // drafts that are still to come
      drawn.push_back({i, draw, end - 1 - behind, next - behind});
    }
  }
  return drawn;
}

int64_t most_drawn_rows(const StepRunnerConfig& config) {
  const int64_t rows = std::max(config.max_running_requests * (1 + config.most_drafts),
                                kernels::kRecordedRows.back());
  return config.verify_tokens > 0 ? rows + config.max_prefill_tokens : rows;
}

}  // namespace slime::engine
